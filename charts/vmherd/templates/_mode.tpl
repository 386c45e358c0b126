{{/* The mode, and the facts about the cluster that it depends on. */}}

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

{{/* "true" if Helm can read objects of the cluster. Without a cluster, `lookup` returns an empty dict also for a list. */}}
{{- define "vmherd.isConnected" -}}
{{- if lookup "apps/v1" "Deployment" (include "vmherd.namespace" .) "" }}true{{ end }}
{{- end }}

{{- define "vmherd.isOpenShift" -}}
{{- if eq .Values.platform "openshift" }}true
{{- else if and (eq .Values.platform "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1") }}true
{{- end }}
{{- end }}

{{/* The mode of the release. With mode auto, the result is stored in .Values, because it costs requests. */}}
{{- define "vmherd.mode" -}}
{{- if eq .Values.mode "auto" }}
{{- $_ := set .Values "mode" (include "vmherd.automaticMode" .) }}
{{- end }}
{{- .Values.mode }}
{{- end }}

{{- define "vmherd.automaticMode" -}}
{{- if include "vmherd.formerMode" . }}
{{- include "vmherd.formerMode" . }}
{{- else if not (include "vmherd.isConnected" .) }}
{{- $_ := fail "\n\nThe mode is auto, but Helm cannot ask the cluster, for example in `helm template`, in `--dry-run=client`, or in Argo CD.\nSo it is unknown whether the cluster has KubeVirt, and which mode the release had before. Choose the mode:\n  --set mode=standalone   for a cluster without KubeVirt\n  --set mode=alongside    beside KubeVirt, with the kinds of vmherd.dev\n  --set mode=takeover     instead of KubeVirt's two controllers for these kinds\n" }}
{{- "standalone" }}
{{- else if include "vmherd.hasKubeVirt" . }}
{{- "alongside" }}
{{- else }}
{{- "standalone" }}
{{- end }}
{{- end }}

{{- define "vmherd.shipsCrds" -}}
{{- if and .Values.crds.enabled (ne (include "vmherd.mode" .) "takeover") }}true{{ end }}
{{- end }}
