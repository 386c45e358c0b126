{{/* Names, labels and the image. */}}

{{- define "vmherd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | regexFind "^.*[a-zA-Z0-9]" }}
{{- end }}

{{/* At most 52 characters: with a suffix, the name must fit into a label value of 63 characters. A name that is cut
ends with a letter or a digit. */}}
{{- define "vmherd.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | regexFind "^.*[a-zA-Z0-9]" }}
{{- else if contains (include "vmherd.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | regexFind "^.*[a-zA-Z0-9]" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "vmherd.name" .) | trunc 52 | regexFind "^.*[a-zA-Z0-9]" }}
{{- end }}
{{- end }}

{{- define "vmherd.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "vmherd.selectorLabels" -}}
app.kubernetes.io/name: {{ include "vmherd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{/* "true" if there is a Pod for `helm test`. */}}
{{- define "vmherd.hasTest" -}}
{{- if and .Values.tests.enabled .Values.metrics.enabled .Values.metrics.service.enabled }}true{{ end }}
{{- end }}

{{- define "vmherd.testLabels" -}}
app.kubernetes.io/name: {{ include "vmherd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: test
{{- end }}

{{/* These labels do not contain the chart's version. So an upgrade replaces Pods only if something else changed. */}}
{{- define "vmherd.podLabels" -}}
{{- $selector := include "vmherd.selectorLabels" . | fromYaml }}
{{- merge (dict) $selector .Values.podLabels .Values.commonLabels | toYaml }}
{{- end }}

{{- define "vmherd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | regexFind "^.*[a-zA-Z0-9]" }}
{{ include "vmherd.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: {{ include "vmherd.name" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The labels and annotations of an object. The argument is a list: the root, additional labels, additional
annotations. */}}
{{- define "vmherd.marks" -}}
{{- $root := index . 0 -}}
{{- $labels := merge (dict) (index . 1) (include "vmherd.labels" $root | fromYaml) -}}
{{- $annotations := merge (dict) (index . 2) $root.Values.commonAnnotations -}}
labels:
  {{- toYaml $labels | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "vmherd.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "vmherd.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is needed if serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "vmherd.registry" -}}
{{- default .Values.image.registry .Values.global.imageRegistry }}
{{- end }}

{{- define "vmherd.image" -}}
{{- with include "vmherd.registry" . }}{{ . }}/{{ end }}
{{- with .Values.image }}
{{- .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "vmherd.leaseName" -}}
{{- default (include "vmherd.fullname" .) .Values.leaderElection.id }}
{{- end }}
