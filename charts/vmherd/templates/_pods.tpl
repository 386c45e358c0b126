{{/* The parts that all Pods of the chart share: the controller, the Jobs of hooks, and the test. */}}

{{/* The Secrets for pulling images: those of all charts, then those of this chart. An entry may be only a name. */}}
{{- define "vmherd.pullSecrets" -}}
{{- $secrets := list }}
{{- range concat .Values.global.imagePullSecrets .Values.imagePullSecrets }}
{{- $secrets = append $secrets (ternary (dict "name" .) . (kindIs "string" .)) }}
{{- end }}
{{- with $secrets | uniq }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A security context without fixed users and groups on OpenShift, which chooses them from the range of the namespace.
The argument is a list: the root, and the security context. */}}
{{- define "vmherd.securityContext" -}}
{{- $context := index . 1 }}
{{- if include "vmherd.isOpenShift" (index . 0) }}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" "supplementalGroups" }}
{{- end }}
{{- toYaml $context }}
{{- end }}

{{/* The network of the Pods. A Pod in the network of its node resolves Services only with ClusterFirstWithHostNet. */}}
{{- define "vmherd.network" -}}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- with default (ternary "ClusterFirstWithHostNet" "" .Values.hostNetwork) .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The nodes of the Pods, the scheduler that chooses them, and the user namespace on them. */}}
{{- define "vmherd.nodes" -}}
{{- if not .Values.hostUsers }}
hostUsers: false
{{- end }}
{{- with .Values.schedulerName }}
schedulerName: {{ . }}
{{- end }}
{{- with merge (dict) .Values.nodeSelector .Values.global.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat .Values.global.tolerations .Values.tolerations | uniq }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The connections that a command needs, as egress rules. */}}
{{- define "vmherd.egress" }}
# DNS.
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
# The API server.
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
  {{- with .Values.networkPolicy.apiServerTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}
