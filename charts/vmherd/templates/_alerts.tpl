{{/* The alerts in files/alerts.yaml, with the changes in metrics.prometheusRule, and the recording rules. */}}
{{- define "vmherd.alerts" -}}
{{- $values := .Values.metrics.prometheusRule }}
{{- $runbook := tpl $values.runbookUrl . }}
{{- $names := list }}
{{- $groups := list }}
{{- range $group := (.Files.Get "files/alerts.yaml" | fromYaml).groups }}
{{- $rules := list }}
{{- range $rule := $group.rules }}
{{- $names = append $names $rule.alert }}
{{- $change := default (dict) (index $values.alerts $rule.alert) }}
{{- if dig "enabled" true $change }}
{{- $rules = append $rules (include "vmherd.alert" (list $values $rule $change $runbook) | fromYaml) }}
{{- end }}
{{- end }}
{{- if $rules }}
{{- $groups = append $groups (set $group "rules" $rules) }}
{{- end }}
{{- end }}
{{- range $name, $_ := $values.alerts }}
{{- if not (has $name $names) }}
{{- fail (printf "\n\nmetrics.prometheusRule.alerts has %s, but there is no such alert. The alerts are %s.\n" $name (join ", " $names)) }}
{{- end }}
{{- end }}
{{- $recordings := (.Files.Get "files/recordings.yaml" | fromYaml).groups }}
{{- dict "groups" (concat $groups $recordings) | toYaml }}
{{- end }}

{{/* One alert. The argument is a list: the values of the PrometheusRule, the alert, its changes, and the page of the runbooks. */}}
{{- define "vmherd.alert" -}}
{{- $values := index . 0 }}
{{- $rule := index . 1 }}
{{- $change := index . 2 }}
{{- $notes := list }}
{{- if hasKey $change "threshold" }}
{{- /* Each expression in files/alerts.yaml ends with a comparison with a number. */}}
{{- $_ := set $rule "expr" (regexReplaceAll "([<>]) [0-9.]+\\s*$" $rule.expr (printf "${1} %v" $change.threshold)) }}
{{- $notes = append $notes (printf "threshold %v" $change.threshold) }}
{{- end }}
{{- if hasKey $change "for" }}
{{- $_ := set $rule "for" $change.for }}
{{- $notes = append $notes (printf "for %s" $change.for) }}
{{- end }}
{{- $labels := merge (dict) (default (dict) $change.labels) $values.alertLabels $rule.labels }}
{{- with $change.severity }}
{{- $_ := set $labels "severity" . }}
{{- end }}
{{- $annotations := merge (dict) (default (dict) $change.annotations) $rule.annotations }}
{{- with index . 3 }}
{{- if not (hasKey $annotations "runbook_url") }}
{{- $_ := set $annotations "runbook_url" (printf "%s#%s" . (lower $rule.alert)) }}
{{- end }}
{{- end }}
{{- if $notes }}
{{- $_ := set $annotations "description" (printf "%s (The values of the chart change this alert: %s.)" $annotations.description (join ", " $notes)) }}
{{- end }}
{{- merge (dict "labels" $labels "annotations" $annotations) $rule | toYaml }}
{{- end }}
