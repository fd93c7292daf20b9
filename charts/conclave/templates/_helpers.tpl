{{/* conclave.text returns a file of config/ with the release's namespace. Arguments: root, path. */}}
{{- define "conclave.text" -}}
{{- $root := index . 0 -}}
{{ $root.Files.Get (index . 1) | trimPrefix "---\n" | replace "conclave-system" $root.Release.Namespace }}
{{- end }}

{{/* conclave.image returns the reference of an image. Arguments: the image, the name of its value. */}}
{{- define "conclave.image" -}}
{{- $image := index . 0 -}}
{{- if and $image.tag $image.digest }}{{ fail (printf "set either %[1]s.tag or %[1]s.digest, and the other one to an empty string" (index . 1)) }}{{ end -}}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ required (printf "set %[1]s.tag or %[1]s.digest" (index . 1)) $image.tag }}{{ end }}
{{- end }}

{{/* conclave.pod sets what all pods of the chart have in common. Arguments: root, pod spec. */}}
{{- define "conclave.pod" -}}
{{- $values := (index . 0).Values -}}
{{- $pod := index . 1 -}}
{{- range $key := list "imagePullSecrets" "priorityClassName" "nodeSelector" "tolerations" }}
{{- with index $values $key }}{{ $_ := set $pod $key . }}{{ end }}
{{- end }}
{{- end }}

{{/* conclave.manager returns the Deployment of the manager with the values. */}}
{{- define "conclave.manager" -}}
{{- $deployment := include "conclave.text" (list . "config/manager/manager.yaml") | fromYaml -}}
{{- $pod := $deployment.spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- include "conclave.pod" (list . $pod) -}}
{{- with .Values.affinity }}{{ $_ := set $pod "affinity" . }}{{ end -}}
{{- $_ := set $deployment.spec "replicas" .Values.replicas -}}
{{- $_ := set $container "image" (include "conclave.image" (list .Values.image "image")) -}}
{{- $_ := set $container "resources" .Values.resources -}}
{{- $_ := set $container "args" (concat $container.args .Values.extraArgs) -}}
{{- range $container.env -}}
{{- if eq .name "AGENT_IMAGE" }}{{ $_ := set . "value" (include "conclave.image" (list $.Values.agent.image "agent.image")) }}{{ end -}}
{{- end -}}
{{ toYaml $deployment }}
{{- end }}
