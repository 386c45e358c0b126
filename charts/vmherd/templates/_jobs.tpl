{{/* A Job of a Helm hook that runs a command of vmherd, with its own account and roles. The name has at most 10
characters, because the name of a Job must fit into a label value. The argument is a dict:
root, name, events, weight, args (a list), and grants (a list of dicts with the namespace and the name of the rules). */}}
{{- define "vmherd.job" }}
{{- $root := .root }}
{{- $name := printf "%s-%s" (include "vmherd.fullname" $root) .name }}
{{- $namespace := include "vmherd.namespace" $root }}
{{- $labels := dict "app.kubernetes.io/component" .name }}
{{- $podLabels := include "vmherd.selectorLabels" $root | fromYaml | merge (dict) $labels }}
{{- $policy := "before-hook-creation,hook-succeeded" }}
{{- $before := dict "helm.sh/hook" .events "helm.sh/hook-weight" (sub .weight 1 | toString) "helm.sh/hook-delete-policy" $policy }}
{{- $during := dict "helm.sh/hook" .events "helm.sh/hook-weight" (.weight | toString) "helm.sh/hook-delete-policy" $policy }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  {{- include "vmherd.marks" (list $root $labels $before) | nindent 2 }}
automountServiceAccountToken: false
{{- range .grants }}
{{- $kind := ternary "Role" "ClusterRole" (ne .namespace "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  {{- include "vmherd.marks" (list $root $labels $before) | nindent 2 }}
rules:
  {{- range .rules }}
  {{- include . $root | trim | nindent 2 }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  {{- include "vmherd.marks" (list $root $labels $before) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $namespace }}
{{- end }}
{{- if $root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  {{- include "vmherd.marks" (list $root $labels $before) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- toYaml $podLabels | nindent 6 }}
  policyTypes: [Ingress, Egress]
  egress:
    {{- include "vmherd.egress" $root | trim | nindent 4 }}
{{- end }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  {{- include "vmherd.marks" (list $root $labels $during) | nindent 2 }}
spec:
  # The command refuses to work while a controller holds the lease. So a first attempt may come too early.
  backoffLimit: {{ $root.Values.hooks.backoffLimit }}
  template:
    metadata:
      labels:
        {{- toYaml $podLabels | nindent 8 }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      {{- with include "vmherd.pullSecrets" $root | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      securityContext:
        {{- include "vmherd.securityContext" (list $root $root.Values.podSecurityContext) | nindent 8 }}
      {{- with include "vmherd.network" $root | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with include "vmherd.nodes" $root | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      containers:
        - name: vmherd
          image: {{ include "vmherd.image" $root | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            {{- toYaml .args | nindent 12 }}
          {{- with $root.Values.extraEnv }}
          env:
            {{- tpl (toYaml .) $root | nindent 12 }}
          {{- end }}
          {{- with $root.Values.hooks.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext:
            {{- include "vmherd.securityContext" (list $root $root.Values.securityContext) | nindent 12 }}
{{- end }}
