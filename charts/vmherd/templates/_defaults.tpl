{{/* Give each value that is null, or whose section is null, its default. Each template begins with this: Helm removes such
a value, and promises no order of the templates. A null inside a single value, such as resources.limits, removes a part. */}}
{{- define "vmherd.defaults" -}}
{{- range $name, $default := .Files.Get "files/defaults.json" | fromJson }}
{{- $path := splitList "." $name }}
{{- $section := $.Values }}
{{- range initial $path }}
{{- if not (index $section .) }}
{{- $_ := set $section . dict }}
{{- end }}
{{- $section = index $section . }}
{{- end }}
{{- if kindIs "invalid" (index $section (last $path)) }}
{{- $_ := set $section (last $path) $default }}
{{- end }}
{{- end }}
{{- end }}
