{{/* The arguments of `vmherd run`. */}}
{{- define "vmherd.args" -}}
- --mode={{ include "vmherd.mode" . }}
- --observe={{ .Values.observe }}
- --second-writer-check={{ .Values.secondWriterCheck.enabled }}
{{- with .Values.secondWriterCheck.kubevirtNamespace }}
- --kubevirt-namespace={{ . }}
{{- end }}
{{- with .Values.watchNamespaces }}
- --watch-namespaces={{ join "," . }}
{{- end }}
{{- with .Values.leaderElection }}
- --leader-elect={{ .enabled }}
{{- if .enabled }}
- --leader-election-id={{ include "vmherd.leaseName" $ }}
- --leader-election-namespace={{ include "vmherd.namespace" $ }}
- --lease-duration={{ .leaseDuration }}
- --renew-deadline={{ .renewDeadline }}
- --retry-period={{ .retryPeriod }}
{{- end }}
{{- end }}
{{- with .Values.settings }}
- --workers={{ .workers | int64 }}
- --burst={{ .burst | int64 }}
- --max-replicas={{ .maxReplicas | int64 }}
- --revision-history={{ .revisionHistory | int64 }}
- --disruption-budgets={{ .disruptionBudgets }}
- --migrations={{ .migrations }}
- --sync-timeout={{ .syncTimeout }}
- --shutdown-grace={{ .shutdownGrace }}
- --max-inflight={{ .maxInflight | int64 }}
- --debug-endpoints={{ .debugEndpoints }}
{{- end }}
- --health-probe-bind-address=:{{ .Values.healthPort | int64 }}
{{- with .Values.metrics }}
- --metrics-bind-address={{ if .enabled }}:{{ .port | int64 }}{{ else }}0{{ end }}
- --object-metrics={{ .objectMetrics }}
- --metrics-secure={{ .secure.enabled }}
{{- if include "vmherd.hasCertificate" $ }}
- --metrics-cert-file={{ include "vmherd.certificatePath" $ }}/tls.crt
- --metrics-key-file={{ include "vmherd.certificatePath" $ }}/tls.key
{{- end }}
{{- end }}
- --log-level={{ .Values.logs.level }}
- --log-format={{ .Values.logs.format }}
{{- range .Values.extraArgs }}
- {{ tpl . $ | quote }}
{{- end }}
{{- end }}

{{- define "vmherd.hasCertificate" -}}
{{- with .Values.metrics }}
{{- if and .enabled .secure.enabled (or .secure.certificateSecret .secure.certManager.enabled) }}true{{ end }}
{{- end }}
{{- end }}

{{/* "true" if cert-manager issues the certificate. */}}
{{- define "vmherd.hasCertManager" -}}
{{- if and (include "vmherd.hasCertificate" .) .Values.metrics.secure.certManager.enabled }}true{{ end }}
{{- end }}

{{- define "vmherd.certificateSecret" -}}
{{- default (printf "%s-metrics" (include "vmherd.fullname" .)) .Values.metrics.secure.certificateSecret }}
{{- end }}

{{/* The name in the certificate. */}}
{{- define "vmherd.serverName" -}}
{{ include "vmherd.fullname" . }}-metrics.{{ include "vmherd.namespace" . }}.svc
{{- end }}

{{- define "vmherd.certificatePath" -}}
/etc/vmherd/certificate
{{- end }}

{{/* The list of volumes: the certificate, and the additional volumes in the values. */}}
{{- define "vmherd.volumes" -}}
{{- $volumes := .Values.extraVolumes }}
{{- if include "vmherd.hasCertificate" . }}
{{- $secret := dict "secretName" (include "vmherd.certificateSecret" .) }}
{{- $volumes = prepend $volumes (dict "name" "certificate" "secret" $secret) }}
{{- end }}
{{- with $volumes }}{{ toYaml . }}{{ end }}
{{- end }}

{{- define "vmherd.volumeMounts" -}}
{{- $mounts := .Values.extraVolumeMounts }}
{{- if include "vmherd.hasCertificate" . }}
{{- $path := include "vmherd.certificatePath" . }}
{{- $mounts = prepend $mounts (dict "name" "certificate" "mountPath" $path "readOnly" true) }}
{{- end }}
{{- with $mounts }}{{ toYaml . }}{{ end }}
{{- end }}
