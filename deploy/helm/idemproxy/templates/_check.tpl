{{/* Refuses values that would let an operation be executed twice. */}}
{{- define "idemproxy.check" -}}
{{- include "idemproxy.checkListeners" . -}}
{{- include "idemproxy.checkKnown" . -}}
{{- $store := include "idemproxy.store" . -}}
{{- if and (eq .Values.mode "standalone") (has $store (list "memory" "file")) -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) -}}
{{- fail (printf "replicas: the store %q is one replica's own: several would each execute the same key. Set replicas: 1 and autoscaling.enabled: false, or config.store.type: redis or postgres" $store) -}}
{{- end -}}
{{- end -}}
{{- if not (or (dig "upstream" "url" "" .Values.config) .Values.existingConfigMap) -}}
{{- fail "config.upstream.url: name the application to protect, such as http://my-app:3000, or as a sidecar http://127.0.0.1:3000" -}}
{{- end -}}
{{- end -}}

{{/* Refuses listeners that probes or the Service would not reach. */}}
{{- define "idemproxy.checkListeners" -}}
{{- range $part, $default := dict "server" ":8080" "admin" ":9090" -}}
{{- $listen := dig $part "listen" $default $.Values.config -}}
{{- if not (regexMatch ":[0-9]+$" $listen) -}}
{{- fail (printf "config.%s.listen: an address with a port in figures, such as %s: probes and Services need it, so it can't be empty or a variable" $part $default) -}}
{{- end -}}
{{- if and (regexMatch "^(127\\.|localhost:|\\[::1\\]:)" $listen) (or (eq $part "admin") (eq $.Values.mode "standalone")) -}}
{{- fail (printf "config.%s.listen: nobody outside the pod reaches a loopback address, neither probes nor Services; say %s" $part $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses what the chart must know and would not, and a load that nothing measures. */}}
{{- define "idemproxy.checkKnown" -}}
{{- if contains "${" (include "idemproxy.store" .) -}}
{{- fail "config.store.type: no variable here: volumes, Secret and the number of replicas follow from it" -}}
{{- end -}}
{{- if and (include "idemproxy.native" .) (semverCompare "<1.29.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail "sidecar.native: this cluster is older than Kubernetes 1.29 and would wait for ever for the init container's end; set false" -}}
{{- end -}}
{{- with .Values -}}
{{- $type := include "idemproxy.store" $ -}}
{{- $store := dig "store" $type (dict) .config -}}
{{- if and (has $type (list "redis" "postgres")) (not (or .existingSecret .existingConfigMap .extraEnv .extraEnvFrom $store.url $store.url_file $store.addresses)) -}}
{{- fail (printf "existingSecret: name a Secret with the store's URL as %s-url, or set config.store.%s" $type $type) -}}
{{- end -}}
{{- end -}}
{{- range $values := list "commonLabels" "podLabels" -}}
{{- range $label := list "app.kubernetes.io/name" "app.kubernetes.io/instance" -}}
{{- if hasKey (default (dict) (get $.Values $values)) $label -}}
{{- fail (printf "%s: not %s, by which the chart's objects find the pods; see nameOverride" $values $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if has .name (list "IDEMPROXY_STORE_TYPE" "IDEMPROXY_SERVER_LISTEN" "IDEMPROXY_ADMIN_LISTEN" "IDEMPROXY_SERVER_DRAIN_DELAY" "IDEMPROXY_SERVER_SHUTDOWN_GRACE") -}}
{{- fail (printf "extraEnv: not %s: set it in config, from which the chart takes store, ports and the time to drain" .name) -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraArgs -}}
{{- if regexMatch "^--(admin-)?listen" . -}}
{{- fail "extraArgs: set config.server.listen and config.admin.listen instead of the flags, for the chart takes ports from there" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (not (or (dig "requests" "cpu" "" .Values.resources) (dig "limits" "cpu" "" .Values.resources))) -}}
{{- fail "resources.requests.cpu: autoscaling measures the load against it" -}}
{{- end -}}
{{- end -}}
