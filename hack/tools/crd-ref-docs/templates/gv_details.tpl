{{- define "gvDetails" -}}
`{{ .GroupVersionString }}`: {{ .Doc | trim | trimPrefix "Package v1 contains " }}

`kubectl explain electiongroup.spec` shows the same descriptions. Fields that have a default are optional.
{{ range .SortedTypes }}
{{- if .GVK }}{{ template "type" . }}{{ end }}
{{- end }}
{{- range .SortedTypes }}
{{- if not .GVK }}{{ template "type" . }}{{ end }}
{{- end }}
{{- end -}}
