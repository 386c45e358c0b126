{{/* "true" if a kind of the Prometheus operator is enabled and not known to be missing in the cluster. The argument is a
list: the root, the values of the object, and its kind. */}}
{{- define "vmherd.monitored" -}}
{{- $root := index . 0 -}}
{{- $missing := and (include "vmherd.hasCluster" $root) (not ($root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 2)))) }}
{{- if and (index . 1).enabled (not $missing) }}true{{ end }}
{{- end }}

{{/* The enabled kinds of the Prometheus operator that the cluster does not have. */}}
{{- define "vmherd.leftOut" -}}
{{- $kinds := list }}
{{- range $name, $kind := dict "serviceMonitor" "ServiceMonitor" "podMonitor" "PodMonitor" "prometheusRule" "PrometheusRule" }}
{{- $values := index $.Values.metrics $name }}
{{- if and $values.enabled (not (include "vmherd.monitored" (list $ $values $kind))) }}
{{- $kinds = append $kinds $kind }}
{{- end }}
{{- end }}
{{- join ", " $kinds }}
{{- end }}

{{/* The endpoint of a monitor. The argument is a list: the root, and the values of the monitor. */}}
{{- define "vmherd.endpoint" -}}
{{- $root := index . 0 -}}
{{- $monitor := index . 1 -}}
- port: metrics
  path: /metrics
  {{- range $key := list "interval" "scrapeTimeout" "honorLabels" "relabelings" "metricRelabelings" }}
  {{- with index $monitor $key }}
  {{- dict $key . | toYaml | nindent 2 }}
  {{- end }}
  {{- end }}
  {{- if $root.Values.metrics.secure.enabled }}
  scheme: https
  tlsConfig:
    {{- include "vmherd.tls" . | nindent 4 }}
  {{- with $monitor.authorization }}
  authorization:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end }}

{{/* The TLS settings of a monitor. The argument is a list: the root, and the values of the monitor.
Prometheus connects to the address of a Pod, but the certificate is for the name of the Service. So serverName is set if
metrics.secure has a certificateSecret, also if the values have other TLS settings. */}}
{{- define "vmherd.tls" -}}
{{- $root := index . 0 -}}
{{- $monitor := index . 1 -}}
{{- $otherwise := dict "insecureSkipVerify" true -}}
{{- if include "vmherd.hasCertificate" $root }}
{{- $otherwise = dict "serverName" (printf "%s-metrics.%s.svc" (include "vmherd.fullname" $root) (include "vmherd.namespace" $root)) -}}
{{- else if $monitor.tlsConfig }}
{{- $otherwise = dict -}}
{{- end }}
{{- merge (dict) $monitor.tlsConfig $otherwise | toYaml }}
{{- end }}

{{/* The metadata of a monitor. The argument is a list: the root, and the values of the monitor. */}}
{{- define "vmherd.monitor.metadata" -}}
{{- $root := index . 0 -}}
{{- $monitor := index . 1 -}}
name: {{ include "vmherd.fullname" $root }}
namespace: {{ default (include "vmherd.namespace" $root) $monitor.namespace }}
{{ include "vmherd.marks" (list $root $monitor.labels $monitor.annotations) }}
{{- end }}

{{/* The targets of a monitor. */}}
{{- define "vmherd.monitor.targets" -}}
namespaceSelector:
  matchNames: [{{ include "vmherd.namespace" . }}]
selector:
  matchLabels:
    {{- include "vmherd.selectorLabels" . | nindent 4 }}
{{- end }}
