{{- define "type" -}}
{{- if markdownShouldRenderType . }}
## {{ .Name }}

{{ .Doc | trim }}
{{- range .Validation }}{{ if not (hasPrefix "Enum" .) }}

{{ template "bound" . }}
{{- end }}{{ end }}
{{- if .References }}

Used by {{ range $i, $user := .SortedReferences }}{{ if $i }}, {{ end }}{{ markdownRenderTypeLink $user }}{{ end }}.
{{- end }}
{{ if .Members }}
| field | description | default | validation |
| --- | --- | --- | --- |
{{- range .Members }}
| `{{ .Name }}` {{ markdownRenderType .Type }} | {{ template "type_members" . }} | {{ if and .Default (not (hasPrefix "{" .Default)) }}`{{ .Default }}`{{ end }} | {{ template "bounds" . }} |
{{- end }}
{{ end }}
{{- if .EnumValues }}
| value | meaning |
| --- | --- |
{{- range .EnumValues }}
| `{{ .Name }}` | {{ regexReplaceAll "^[A-Za-z]+: " .Doc "" | trim | replace "\n" " " }} |
{{- end }}
{{ end }}
{{- end }}
{{- end -}}
