{{/* Made by `python -m charts` from controller/kinds.py: change that, not this. */}}

{{- define "vmherd.replicasetGroup" -}}
{{- if eq (include "vmherd.mode" .) "alongside" }}vmherd.dev{{ else }}kubevirt.io{{ end }}
{{- end }}

{{- define "vmherd.poolGroup" -}}
{{- if eq (include "vmherd.mode" .) "alongside" }}pool.vmherd.dev{{ else }}pool.kubevirt.io{{ end }}
{{- end }}

{{- define "vmherd.replicasetName" -}}
{{- if eq (include "vmherd.mode" .) "alongside" }}hvmirs{{ else }}vmirs{{ end }}
{{- end }}

{{- define "vmherd.poolName" -}}
{{- if eq (include "vmherd.mode" .) "alongside" }}hvmpool{{ else }}vmpool{{ end }}
{{- end }}

{{/* What a kind's definition has in the mode of the release, by the kind: for `fromYaml`. */}}
{{- define "vmherd.kinds" -}}
VirtualMachineInstanceReplicaSet: {group: {{ include "vmherd.replicasetGroup" . }}, ownShortNames: ["hvmirs", "hvmirss"]}
VirtualMachinePool: {group: {{ include "vmherd.poolGroup" . }}, ownShortNames: ["hvmpool", "hvmpools"]}
{{- end }}
