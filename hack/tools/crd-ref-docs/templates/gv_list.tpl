{{- define "gvList" -}}
<!-- Made from the comments in api/v1 by: make generate -->

# The API

{{ range . -}}
{{ template "gvDetails" . }}
{{- end }}
{{- end -}}
