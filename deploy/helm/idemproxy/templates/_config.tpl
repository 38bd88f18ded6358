{{/* The configuration file: config, and what the chart adds where it is silent. */}}
{{- define "idemproxy.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $server := default (dict) $config.server -}}
{{- if not (hasKey $server "drain_delay") -}}
{{- $_ := set $server "drain_delay" (ternary "0s" "5s" (eq (include "idemproxy.native" .) "true")) -}}
{{- end -}}
{{- $_ := set $config "server" $server -}}
{{- $store := default (dict) $config.store -}}
{{- $type := include "idemproxy.store" . -}}
{{- if and .Values.existingSecret (has $type (list "redis" "postgres")) -}}
{{- $settings := default (dict) (get $store $type) -}}
{{- if not (or $settings.url $settings.url_file $settings.addresses) -}}
{{- $_ := set $settings "url_file" (printf "/etc/idemproxy/secrets/%s-url" $type) -}}
{{- $_ := set $store $type $settings -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "store" $store -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Name of the ConfigMap with the configuration. */}}
{{- define "idemproxy.configMapName" -}}
{{- default (include "idemproxy.fullname" .) .Values.existingConfigMap -}}
{{- end -}}

{{/* The port of server.listen, or of admin.listen: call it with (list . "admin" ":9090"). */}}
{{- define "idemproxy.port" -}}
{{- $root := index . 0 -}}
{{- $listen := default (index . 2) (dig (index . 1) "listen" "" $root.Values.config) -}}
{{- regexFind "[0-9]+$" $listen -}}
{{- end -}}

{{/* Annotations of a pod that change with the configuration, where a change restarts it. */}}
{{- define "idemproxy.annotations" -}}
{{- if and (eq .Values.onConfigChange "restart") (not .Values.existingConfigMap) -}}
checksum/idemproxy: {{ include "idemproxy.config" . | sha256sum }}
{{- end -}}
{{- end -}}
