{{- define "type_members" -}}
{{- if eq .Name "metadata" -}}
metadata is that of every object.
{{- else -}}
{{ markdownRenderFieldDoc .Doc | replace "<br />" " " }}
{{- end -}}
{{- end -}}

{{/* bounds are the markers of a field, in words. */}}
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
{{- else if eq $parts._0 "MinItems" }}at least {{ $parts._1 }} of them
{{- else if or (eq $parts._0 "MaxItems") (eq $parts._0 "MaxProperties") }}at most {{ $parts._1 }} of them
{{- else if eq $parts._0 "MinLength" }}not empty
{{- else if eq $parts._0 "MaxLength" }}at most {{ $parts._1 }} bytes
{{- else if eq $parts._0 "items:MinLength" }}none empty
{{- else if eq $parts._0 "items:MaxLength" }}each of at most {{ $parts._1 }} bytes
{{- else }}{{ . }}
{{- end -}}
{{- end -}}
