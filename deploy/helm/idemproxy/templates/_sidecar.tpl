{{/*
The proxy beside an application, in the application's own chart, which has this one as a dependency with mode: sidecar.
One in a pod: a second would have the same names of container, ports and volumes, and the cluster refuses it.
Give each template the dependency's context, .Subcharts.idemproxy (or its alias):

  metadata:
    {{- with include "idemproxy.sidecar.annotations" .Subcharts.idemproxy }}
    annotations:
      {{- . | nindent 8 }}
    {{- end }}
  spec:
    terminationGracePeriodSeconds: {{ include "idemproxy.sidecar.terminationGracePeriodSeconds" .Subcharts.idemproxy }}
    initContainers:   # containers, with sidecar.native: false
      {{- include "idemproxy.sidecar" .Subcharts.idemproxy | nindent 8 }}
    volumes:
      {{- include "idemproxy.sidecar.volumes" .Subcharts.idemproxy | nindent 8 }}
*/}}
{{- define "idemproxy.sidecar" -}}
{{- include "idemproxy.checkSidecar" . -}}
- {{ include "idemproxy.container" . | nindent 2 | trim }}
{{- end -}}

{{- define "idemproxy.sidecar.volumes" -}}
{{- include "idemproxy.volumes" . -}}
{{- end -}}

{{- define "idemproxy.sidecar.annotations" -}}
{{- include "idemproxy.annotations" . -}}
{{- end -}}

{{/* What the pod needs at least for the proxy; more, if the application takes its time first. */}}
{{- define "idemproxy.sidecar.terminationGracePeriodSeconds" -}}
{{- include "idemproxy.terminationGracePeriodSeconds" . -}}
{{- end -}}

{{- define "idemproxy.checkSidecar" -}}
{{- if ne .Values.mode "sidecar" -}}
{{- fail "idemproxy.sidecar: set mode: sidecar in the values of the dependency (idemproxy: {mode: sidecar})" -}}
{{- end -}}
{{- end -}}
