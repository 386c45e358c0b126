{{/* The mode, the names that depend on it, and the checks of the values. */}}

{{/* "true" if Helm is connected to a cluster. `helm template` knows only groups and versions, no kinds. */}}
{{- define "vmherd.hasCluster" -}}
{{- if .Capabilities.APIVersions.Has "apps/v1/Deployment" }}true{{ end }}
{{- end }}

{{- define "vmherd.hasKubeVirt" -}}
{{- if .Capabilities.APIVersions.Has "kubevirt.io/v1/KubeVirt" }}true{{ end }}
{{- end }}

{{/* The previous mode of a release that is upgraded, from an annotation of its Deployment; "" for a new release. */}}
{{- define "vmherd.formerMode" -}}
{{- $former := lookup "apps/v1" "Deployment" (include "vmherd.namespace" .) (include "vmherd.fullname" .) }}
{{- if $former }}
{{- index (default (dict) $former.metadata.annotations) "vmherd.dev/mode" }}
{{- end }}
{{- end }}

{{- define "vmherd.mode" -}}
{{- if ne .Values.mode "auto" }}
{{- .Values.mode }}
{{- else if include "vmherd.formerMode" . }}
{{- include "vmherd.formerMode" . }}
{{- else if include "vmherd.hasKubeVirt" . }}
{{- "alongside" }}
{{- else }}
{{- "standalone" }}
{{- end }}
{{- end }}

{{- define "vmherd.shipsCrds" -}}
{{- if and .Values.crds.enabled (ne (include "vmherd.mode" .) "takeover") }}true{{ end }}
{{- end }}

{{/* Fail for invalid combinations of values. Two controllers on one object would undo each other's changes. */}}
{{- define "vmherd.check" -}}
{{- $mode := include "vmherd.mode" . }}
{{- if and (eq $mode "standalone") (include "vmherd.hasKubeVirt" .) }}
{{- fail "\n\nThe mode is standalone, but this cluster has KubeVirt. Its virt-controller also reconciles replica sets and pools.\nUse --set mode=alongside to serve the same kinds in the group vmherd.dev,\nor --set mode=takeover to disable these controllers in virt-controller and replace them with vmherd.\n" }}
{{- end }}
{{- if and (eq $mode "takeover") (include "vmherd.hasCluster" .) (not (include "vmherd.hasKubeVirt" .)) }}
{{- fail "\n\nThe mode is takeover, but this cluster has no KubeVirt to take over from.\nUse --set mode=standalone, or install KubeVirt first.\n" }}
{{- end }}
{{- if and (gt (int .Values.replicaCount) 1) (not .Values.leaderElection.enabled) }}
{{- fail "\n\nleaderElection.enabled is false, but replicaCount is more than 1: all Pods would reconcile at the same time.\n" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled }}
{{- fail "\n\nmetrics.serviceMonitor and metrics.podMonitor are both enabled: every Pod would be scraped twice.\n" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) }}
{{- fail "\n\nmetrics.serviceMonitor is enabled, but metrics.service is not: there would be nothing to scrape.\n" }}
{{- end }}
{{- if and (or .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled) (not .Values.metrics.enabled) }}
{{- fail "\n\nA monitor is enabled, but metrics.enabled is false: there is nothing to scrape.\n" }}
{{- end }}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.secure.enabled (not .Values.metrics.podMonitor.authorization) }}
{{- fail "\n\nmetrics.secure and metrics.podMonitor are enabled, but metrics.podMonitor.authorization is not set.\n" }}
{{- end }}
{{- if and (eq .Values.rbac.userRoles "namespaces") (not .Values.watchNamespaces) }}
{{- fail "\n\nrbac.userRoles is namespaces, but watchNamespaces is empty.\n" }}
{{- end }}
{{- end }}
