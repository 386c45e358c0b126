{{/* Which mode it is, what follows from it, and what stands against it. */}}

{{/* Only a real cluster tells of kinds; `helm template` knows groups and versions. */}}
{{- define "vmherd.hasCluster" -}}
{{- if .Capabilities.APIVersions.Has "apps/v1/Deployment" }}true{{ end }}
{{- end }}

{{- define "vmherd.hasKubeVirt" -}}
{{- if .Capabilities.APIVersions.Has "kubevirt.io/v1/KubeVirt" }}true{{ end }}
{{- end }}

{{/* The mode of the release that is being upgraded, as its Deployment says; "" where there is none. */}}
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

{{/* Two controllers on one object fight: better no release than that. */}}
{{- define "vmherd.check" -}}
{{- $mode := include "vmherd.mode" . }}
{{- if and (eq $mode "standalone") (include "vmherd.hasKubeVirt" .) }}
{{- fail "\n\nThe mode is standalone, and this cluster has KubeVirt, whose virt-controller reconciles replica sets and pools, too.\nChoose --set mode=alongside, to have the same kinds in the group vmherd.dev beside it,\nor --set mode=takeover, to have virt-controller leave them to vmherd.\n" }}
{{- end }}
{{- if and (eq $mode "takeover") (include "vmherd.hasCluster" .) (not (include "vmherd.hasKubeVirt" .)) }}
{{- fail "\n\nThe mode is takeover, and this cluster has no KubeVirt to take over from.\nChoose --set mode=standalone, or install KubeVirt first.\n" }}
{{- end }}
{{- if and (gt (int .Values.replicaCount) 1) (not .Values.leaderElection.enabled) }}
{{- fail "\n\nleaderElection.enabled is false, and replicaCount is more than 1: all of them would work at once.\n" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled }}
{{- fail "\n\nmetrics.serviceMonitor and metrics.podMonitor are both enabled: every Pod would be scraped twice.\n" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) }}
{{- fail "\n\nmetrics.serviceMonitor is enabled and metrics.service is not: it would find nothing to scrape.\n" }}
{{- end }}
{{- if and (or .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled) (not .Values.metrics.enabled) }}
{{- fail "\n\nA monitor is enabled and metrics.enabled is false: there is nothing to scrape.\n" }}
{{- end }}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.secure.enabled (not .Values.metrics.podMonitor.authorization) }}
{{- fail "\n\nmetrics.secure is enabled, and metrics.podMonitor.authorization does not say who scrapes.\n" }}
{{- end }}
{{- if and (eq .Values.rbac.userRoles "namespaces") (not .Values.watchNamespaces) }}
{{- fail "\n\nrbac.userRoles is namespaces, and watchNamespaces names none.\n" }}
{{- end }}
{{- end }}
