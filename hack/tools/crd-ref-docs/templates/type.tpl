{{- define "type" -}}
{{- if markdownShouldRenderType . }}
## {{ .Name }}

{{ .Doc | trim }}
{{- range .Validation }}{{ if not (hasPrefix "Enum" .) }}

{{ template "bound" . }}
{{- end }}{{ end }}
{{ if .Members }}
| field | description | default, validation |
| --- | --- | --- |
{{- range .Members }}{{ $then := "" }}{{ range .Validation }}{{ if not (or (hasPrefix "Optional" .) (hasPrefix "Enum" .)) }}{{ $then = ", " }}{{ end }}{{ end }}
| `{{ .Name }}` {{ markdownRenderType .Type }} | {{ template "type_members" . }} | {{ if and .Default (not (hasPrefix "{" .Default)) }}`{{ .Default }}`{{ $then }}{{ end }}{{ template "bounds" . }} |
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
