{{- define "type_members" -}}
{{- if eq .Name "metadata" -}}
the standard object metadata.
{{- else -}}
{{ markdownRenderFieldDoc .Doc | replace "<br />" " " | trimPrefix (printf "%s is " .Name) }}
{{- end -}}
{{- end -}}

{{/* bounds describes the validation markers of a field. */}}
{{- define "bounds" -}}
{{- $more := "" -}}
{{- range .Validation -}}
{{- if hasPrefix "Required" . }}{{ $more }}required{{ $more = ", " }}
{{- else if not (or (hasPrefix "Optional" .) (hasPrefix "Enum" .)) }}{{ $more }}{{ template "bound" . }}{{ $more = ", " }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "bound" -}}
{{- $parts := splitn ": " 2 . -}}
{{- if eq $parts._0 "Minimum" }}at least {{ int64 (float64 $parts._1) }}
{{- else if eq $parts._0 "Maximum" }}at most {{ int64 (float64 $parts._1) }}
{{- else if eq $parts._0 "MinItems" }}at least {{ $parts._1 }} items
{{- else if or (eq $parts._0 "MaxItems") (eq $parts._0 "MaxProperties") }}at most {{ $parts._1 }} items
{{- else if eq $parts._0 "MinLength" }}not empty
{{- else if eq $parts._0 "MaxLength" }}at most {{ $parts._1 }} bytes
{{- else if eq $parts._0 "items:MinLength" }}no empty items
{{- else if eq $parts._0 "items:MaxLength" }}items of at most {{ $parts._1 }} bytes
{{- else }}{{ . }}
{{- end -}}
{{- end -}}
