{{- define "gvDetails" -}}
`{{ .GroupVersionString }}`: {{ .Doc | trim | trimPrefix "Package v1 is " }}

`kubectl explain electiongroup.spec` tells the same. Where a field has a default, it may be left out.
{{ range .SortedTypes }}
{{- if .GVK }}{{ template "type" . }}{{ end }}
{{- end }}
{{- range .SortedTypes }}
{{- if not .GVK }}{{ template "type" . }}{{ end }}
{{- end }}
{{- end -}}
