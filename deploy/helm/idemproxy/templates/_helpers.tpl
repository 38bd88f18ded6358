{{/* Name of the objects: 52 characters at most, for a StatefulSet's pods have a label with the name and eleven more. */}}
{{- define "idemproxy.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "idemproxy.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Each label once: commonLabels go before the chart's own, and nothing before those of the selectors. */}}
{{- define "idemproxy.labels" -}}
{{- $own := dict "app.kubernetes.io/version" (default .Chart.AppVersion .Values.image.tag | trunc 63 | trimSuffix "-") -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- toYaml (merge (include "idemproxy.selectorLabels" . | fromYaml) (default (dict) .Values.commonLabels) $own) -}}
{{- end -}}

{{- define "idemproxy.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "idemproxy.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "idemproxy.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Whether the proxy runs as a native sidecar. */}}
{{- define "idemproxy.native" -}}
{{- if and (eq .Values.mode "sidecar") .Values.sidecar.native }}true{{ end -}}
{{- end -}}

{{/* The type of the store. */}}
{{- define "idemproxy.store" -}}
{{- dig "store" "type" "memory" .Values.config -}}
{{- end -}}

{{/* The seconds of a duration of Go's, such as 1m30s, rounded up; 0 for a variable. */}}
{{- define "idemproxy.seconds" -}}
{{- $sum := 0.0 -}}
{{- $units := dict "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 0.001 "us" 0.000001 "ns" 0.000000001 -}}
{{- range $part := regexFindAll "[0-9.]+(h|ms|m|s|us|ns)" (ternary "" (toString .) (contains "${" (toString .))) -1 -}}
{{- $unit := regexReplaceAll "[0-9.]+" $part "" -}}
{{- $sum = addf $sum (mulf (float64 (trimSuffix $unit $part)) (get $units $unit)) -}}
{{- end -}}
{{- ceil $sum | int -}}
{{- end -}}

{{/* How long a pod has to end: as long as the program may take, and a little more. */}}
{{- define "idemproxy.terminationGracePeriodSeconds" -}}
{{- $server := (include "idemproxy.config" . | fromYaml).server -}}
{{- $needed := add (include "idemproxy.seconds" $server.drain_delay) (include "idemproxy.seconds" (default "30s" $server.shutdown_grace)) -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if or (kindIs "invalid" $given) (eq (toString $given) "") -}}
{{- if contains "${" (printf "%v%v" $server.drain_delay $server.shutdown_grace) -}}
{{- fail "terminationGracePeriodSeconds: say it: config.server.drain_delay or shutdown_grace is a variable, and the chart doesn't know its value" -}}
{{- end -}}
{{- add $needed 5 -}}
{{- else if lt (int $given) (int $needed) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is less than server.drain_delay and server.shutdown_grace together (%d s): pods would be killed while they serve, and their requests' outcomes unknown" (int $given) (int $needed)) -}}
{{- else -}}
{{- int $given -}}
{{- end -}}
{{- end -}}
