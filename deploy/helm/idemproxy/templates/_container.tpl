{{/* The container of the proxy, for both ways to run it. */}}
{{- define "idemproxy.container" -}}
name: idemproxy
image: {{ include "idemproxy.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if include "idemproxy.native" . }}
restartPolicy: Always
lifecycle: # SIGTERM comes when the application has ended; callers are to leave before
  preStop:
    exec: {command: [/idemproxy, drain]}
{{- end }}
args:
  - serve
  - --config=/etc/idemproxy/config/idemproxy.yaml
  {{- with .Values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  {{- $own := dict }}
  {{- range .Values.extraEnv }}{{ $_ := set $own .name true }}{{ end }}
  {{- if not $own.POD_NAME }}
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- end }}
  {{- with include "idemproxy.memoryLimit" . }}
  {{- if not $own.GOMEMLIMIT }}
  - name: GOMEMLIMIT
    value: {{ . }}
  {{- end }}
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - name: idem-http
    containerPort: {{ include "idemproxy.port" (list . "server" ":8080") }}
    protocol: TCP
  - name: idem-admin
    containerPort: {{ include "idemproxy.port" (list . "admin" ":9090") }}
    protocol: TCP
startupProbe:
  httpGet: {path: /startupz, port: idem-admin}
  {{- toYaml .Values.startupProbe | nindent 2 }}
livenessProbe:
  httpGet: {path: /livez, port: idem-admin}
  {{- toYaml .Values.livenessProbe | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: idem-admin}
  {{- toYaml .Values.readinessProbe | nindent 2 }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - name: idemproxy-config
    mountPath: /etc/idemproxy/config
    readOnly: true
  {{- if .Values.existingSecret }}
  - name: idemproxy-secrets
    mountPath: /etc/idemproxy/secrets
    readOnly: true
  {{- end }}
  {{- if eq (include "idemproxy.store" .) "file" }}
  - name: idemproxy-data
    mountPath: /var/lib/idemproxy
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Nine tenths of the memory limit, so that the garbage collector works harder before the kernel ends the process. */}}
{{- define "idemproxy.memoryLimit" -}}
{{- $limit := toString (dig "limits" "memory" "" .Values.resources) -}}
{{- if regexMatch "^[0-9]+(Mi|Gi)$" $limit -}}
{{- $mib := int (regexFind "^[0-9]+" $limit) -}}
{{- if hasSuffix "Gi" $limit }}{{ $mib = mul $mib 1024 }}{{ end -}}
{{- printf "%dMiB" (div (mul $mib 9) 10) -}}
{{- end -}}
{{- end -}}

{{/* The volumes that the container mounts, but for the StatefulSet's own. */}}
{{- define "idemproxy.volumes" -}}
- name: idemproxy-config
  configMap:
    name: {{ include "idemproxy.configMapName" . | quote }}
{{- if .Values.existingSecret }}
- name: idemproxy-secrets
  secret:
    secretName: {{ .Values.existingSecret | quote }}
    defaultMode: {{ ternary "0444" "0440" (eq .Values.mode "sidecar") }} # an application's pod may have no fsGroup
{{- end }}
{{- if eq (include "idemproxy.store" .) "file" }}
{{- if .Values.persistence.existingClaim }}
- name: idemproxy-data
  persistentVolumeClaim:
    claimName: {{ .Values.persistence.existingClaim | quote }}
{{- else if eq .Values.mode "sidecar" }}
- name: idemproxy-data
  emptyDir: {}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
