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
{{- $endpoint := dict "port" "metrics" "path" "/metrics" }}
{{- range $key := list "interval" "scrapeTimeout" "honorLabels" "relabelings" "metricRelabelings" }}
{{- with index $monitor $key }}
{{- $_ := set $endpoint $key . }}
{{- end }}
{{- end }}
{{- if $root.Values.metrics.secure.enabled }}
{{- $token := dict "name" (include "vmherd.tokenName" $root) "key" "token" }}
{{- $_ := set $endpoint "scheme" "https" }}
{{- $_ := set $endpoint "tlsConfig" (include "vmherd.tls" . | fromYaml) }}
{{- $_ := set $endpoint "authorization" (default (dict "credentials" $token) $monitor.authorization) }}
{{- end }}
{{- list (merge (dict) $monitor.endpointAdditionalProperties $endpoint) | toYaml }}
{{- end }}

{{/* The Secret with the token of the chart's account for scrapes. */}}
{{- define "vmherd.tokenName" -}}
{{ include "vmherd.fullname" . }}-metrics-token
{{- end }}

{{/* The TLS settings of a monitor. The argument is a list: the root, and the values of the monitor.
Prometheus connects to the address of a Pod, but the certificate is for the name of the Service. So serverName is set if
metrics.secure has a certificate, also if the values have other TLS settings. A monitor reads a Secret only in its own
namespace. */}}
{{- define "vmherd.tls" -}}
{{- $root := index . 0 -}}
{{- $monitor := index . 1 -}}
{{- $otherwise := dict "insecureSkipVerify" true -}}
{{- if include "vmherd.hasCertificate" $root }}
{{- $otherwise = dict "serverName" (include "vmherd.serverName" $root) -}}
{{- if and (include "vmherd.hasCertManager" $root) (has $monitor.namespace (list "" (include "vmherd.namespace" $root))) }}
{{- $_ := set $otherwise "ca" (dict "secret" (dict "name" (include "vmherd.certificateSecret" $root) "key" "ca.crt")) -}}
{{- end }}
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
