{{/* A role and its binding to the controller's service account. They are cluster-wide if the namespace is "". */}}
{{- define "vmherd.role" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "Role" "ClusterRole" (ne .namespace "") }}
metadata:
  {{- include "vmherd.role.metadata" (list . (dict)) | nindent 2 }}
rules:
  {{- include .rules .root | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "RoleBinding" "ClusterRoleBinding" (ne .namespace "") }}
metadata:
  {{- include "vmherd.role.metadata" (list . (dict)) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ ternary "Role" "ClusterRole" (ne .namespace "") }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "vmherd.serviceAccountName" .root }}
    namespace: {{ include "vmherd.namespace" .root }}
{{- end }}

{{/* The controller deletes no disks. An admission plugin requires these permissions to remove an ownerReference. */}}
{{- define "vmherd.rules.disks" }}
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [delete]
- apiGroups: [cdi.kubevirt.io]
  resources: [datavolumes]
  verbs: [delete]
{{- end }}

{{/* Where the roles for users are: "cluster", "manual", "namespaces" or "none". */}}
{{- define "vmherd.userRoles" -}}
{{- if ne .Values.rbac.userRoles "auto" }}
{{- .Values.rbac.userRoles }}
{{- else if .Values.watchNamespaces }}
{{- "namespaces" }}
{{- else }}
{{- $scope := "cluster" }}
{{- if include "vmherd.hasKubeVirt" . }}
{{- range (lookup "kubevirt.io/v1" "KubeVirt" "" "").items }}
{{- $configuration := (default (dict) .spec).configuration | default (dict) }}
{{- if eq (default "" $configuration.roleAggregationStrategy) "Manual" }}{{ $scope = "manual" }}{{ end }}
{{- end }}
{{- end }}
{{- $scope }}
{{- end }}
{{- end }}

{{/* A role for users. In the scope "cluster", it is aggregated to the roles in addsTo. */}}
{{- define "vmherd.userRole" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "Role" "ClusterRole" (ne .namespace "") }}
metadata:
  {{- $labels := dict }}
  {{- if eq .scope "cluster" }}
  {{- range .addsTo }}
  {{- $_ := set $labels (printf "rbac.authorization.k8s.io/aggregate-to-%s" .) "true" }}
  {{- end }}
  {{- end }}
  {{- include "vmherd.role.metadata" (list . $labels) | nindent 2 }}
rules:
  {{- include .rules .root | trim | nindent 2 }}
{{- end }}

{{- define "vmherd.role.metadata" -}}
{{- $role := index . 0 -}}
name: {{ $role.name }}
{{- with $role.namespace }}
namespace: {{ . }}
{{- end }}
{{ include "vmherd.marks" (list $role.root (index . 1) (dict)) }}
{{- end }}
