{{/* The topology spread constraints: those in the values, or a spread over nodes and zones if possible. */}}
{{- define "vmherd.spread" -}}
{{- $selector := dict "matchLabels" (include "vmherd.selectorLabels" . | fromYaml) }}
{{- $constraints := .Values.topologySpreadConstraints }}
{{- if not $constraints }}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
{{- $constraints = append $constraints (dict "maxSkew" 1 "topologyKey" $key "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash")) }}
{{- end }}
{{- end }}
{{- range $constraints }}
{{ list (merge (dict) . (dict "labelSelector" $selector)) | toYaml }}
{{- end }}
{{- end }}
