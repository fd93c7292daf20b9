{{- define "gvDetails" -}}
`{{ .GroupVersionString }}`: {{ .Doc | trim | trimPrefix "Package v1 contains " }}

`kubectl explain electiongroup.spec` shows the same descriptions. Fields that have a default are optional. `status.protocol` is the operator's own state, and isn't listed here.
{{ range .SortedTypes }}
{{- if .GVK }}{{ template "type" . }}{{ end }}
{{- end }}
{{- range .SortedTypes }}
{{- if not .GVK }}{{ template "type" . }}{{ end }}
{{- end }}
{{- end -}}
