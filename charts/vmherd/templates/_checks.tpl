{{/* The checks of the values. */}}

{{/* Fail for invalid combinations of values. Two controllers on one object would undo each other's changes. */}}
{{- define "vmherd.check" -}}
{{- $mode := include "vmherd.mode" . }}
{{- if not (or (include "vmherd.registry" .) (regexMatch "^([^/]*[.:][^/]*|localhost)/" .Values.image.repository)) }}
{{- fail "\n\nimage.registry is empty, and no image of vmherd is published: build the image, push it, and set image.registry, such as registry.example.com.\n" }}
{{- end }}
{{- if and (eq $mode "standalone") (include "vmherd.hasKubeVirt" .) }}
{{- fail "\n\nThe mode is standalone, but this cluster has KubeVirt. Its virt-controller also reconciles replica sets and pools.\nUse --set mode=alongside to serve the same kinds in the group vmherd.dev,\nor --set mode=takeover to disable these controllers in virt-controller and replace them with vmherd.\n" }}
{{- end }}
{{- if and (eq $mode "takeover") (include "vmherd.hasCluster" .) (not (include "vmherd.hasKubeVirt" .)) }}
{{- fail "\n\nThe mode is takeover, but this cluster has no KubeVirt to take over from.\nUse --set mode=standalone, or install KubeVirt first.\n" }}
{{- end }}
{{- if and (gt (int .Values.replicaCount) 1) (not .Values.leaderElection.enabled) }}
{{- fail "\n\nleaderElection.enabled is false, but replicaCount is more than 1: all Pods would reconcile at the same time.\n" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled }}
{{- fail "\n\nmetrics.serviceMonitor and metrics.podMonitor are both enabled: every Pod would be scraped twice.\n" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) }}
{{- fail "\n\nmetrics.serviceMonitor is enabled, but metrics.service is not: there would be nothing to scrape.\n" }}
{{- end }}
{{- range $name := list "serviceMonitor" "podMonitor" }}
{{- if and (index $.Values.metrics $name).enabled (not $.Values.metrics.enabled) }}
{{- fail (printf "\n\nmetrics.%s is enabled, but metrics.enabled is false: there is nothing to scrape.\n" $name) }}
{{- end }}
{{- end }}
{{- range $name := list "prometheusRule" "dashboards" }}
{{- if and (index $.Values.metrics $name).enabled (not $.Values.metrics.enabled) }}
{{- fail (printf "\n\nmetrics.%s is enabled, but metrics.enabled is false: there would be no metrics to query.\n" $name) }}
{{- end }}
{{- end }}
{{- if and (include "vmherd.hasCertManager" .) (include "vmherd.hasCluster" .) (not (.Capabilities.APIVersions.Has "cert-manager.io/v1/Certificate")) }}
{{- fail "\n\nmetrics.secure.certManager is enabled, but this cluster has no cert-manager.\n" }}
{{- end }}
{{- if and (eq .Values.rbac.userRoles "namespaces") (not .Values.watchNamespaces) }}
{{- fail "\n\nrbac.userRoles is namespaces, but watchNamespaces is empty.\n" }}
{{- end }}
{{- include "vmherd.check.durations" . }}
{{- if and (eq .Values.dnsPolicy "None") (not .Values.dnsConfig.nameservers) }}
{{- fail "\n\ndnsPolicy is None, but dnsConfig.nameservers is empty: the Pods could not resolve any name.\n" }}
{{- end }}
{{- if and .Values.hooks.takeover.enabled (ne $mode "takeover") }}
{{- fail (printf "\n\nhooks.takeover is enabled, but the mode is %s: only mode takeover stops KubeVirt's controllers.\n" $mode) }}
{{- end }}
{{- if and .Values.observe .Values.hooks.takeover.enabled }}
{{- fail "\n\nobserve and hooks.takeover are enabled: KubeVirt's controllers would stop, and vmherd would write nothing.\n" }}
{{- end }}
{{- end }}

{{/* The program has the same rules for its durations. */}}
{{- define "vmherd.check.durations" -}}
{{- $grace := include "vmherd.milliseconds" .Values.settings.shutdownGrace | float64 }}
{{- if le (mulf .Values.terminationGracePeriodSeconds 1000.0) $grace }}
{{- fail (printf "\n\nterminationGracePeriodSeconds is %d, but it must be longer than settings.shutdownGrace, which is %s.\n" (int64 .Values.terminationGracePeriodSeconds) .Values.settings.shutdownGrace) }}
{{- end }}
{{- with .Values.leaderElection }}
{{- if .enabled }}
{{- $lease := include "vmherd.milliseconds" .leaseDuration | float64 }}
{{- $deadline := include "vmherd.milliseconds" .renewDeadline | float64 }}
{{- $retry := include "vmherd.milliseconds" .retryPeriod | float64 }}
{{- if le $lease $deadline }}
{{- fail (printf "\n\nleaderElection.leaseDuration is %s, but it must be longer than leaderElection.renewDeadline, which is %s:\na leader must stop before another Pod may take the lease.\n" .leaseDuration .renewDeadline) }}
{{- end }}
{{- if le $deadline (mulf $retry 1.2) }}
{{- fail (printf "\n\nleaderElection.renewDeadline is %s, but it must be longer than 1.2 times leaderElection.retryPeriod, which is %s.\n" .renewDeadline .retryPeriod) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The length of a duration, such as 1m30s, in milliseconds. */}}
{{- define "vmherd.milliseconds" -}}
{{- $units := dict "us" 0.001 "ms" 1.0 "s" 1000.0 "m" 60000.0 "h" 3600000.0 }}
{{- $sum := 0.0 }}
{{- range $part := regexFindAll "[0-9.]+(ms|us|s|m|h)" . -1 }}
{{- $unit := regexFind "[a-z]+$" $part }}
{{- $sum = addf $sum (mulf (trimSuffix $unit $part | float64) (index $units $unit)) }}
{{- end }}
{{- $sum }}
{{- end }}
