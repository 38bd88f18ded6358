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

{{/*
Annotations of a pod that change with what of the configuration needs a restart: all of it, or
what the program doesn't reload (idemproxy serve --help).
*/}}
{{- define "idemproxy.annotations" -}}
{{- if not .Values.existingConfigMap -}}
{{- $config := include "idemproxy.config" . | fromYaml -}}
{{- if eq .Values.onConfigChange "reload" -}}
{{- $config = omit $config "routes" "defaults" "limits" -}}
{{- $_ := set $config "log" (omit (default (dict) $config.log) "level" "access") -}}
{{- end -}}
checksum/idemproxy: {{ $config | toJson | sha256sum }}
{{- end -}}
{{- end -}}
