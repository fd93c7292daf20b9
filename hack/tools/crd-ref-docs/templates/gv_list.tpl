{{- define "gvList" -}}
<!-- Generated from the comments in api/v1 by `make generate`. Do not edit. -->

# API reference

{{ range . -}}
{{ template "gvDetails" . }}
{{- end }}
{{- end -}}
