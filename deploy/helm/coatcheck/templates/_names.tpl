{{- define "coatcheck.name" -}}
{{- if contains "coatcheck" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-coatcheck" (.Release.Name | trunc 42 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "coatcheck.selector" -}}
app.kubernetes.io/name: coatcheck
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "coatcheck.labels" -}}
{{ include "coatcheck.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "coatcheck.scheme" -}}
{{- if .Values.tls }}https{{ else }}http{{ end }}
{{- end }}

{{- define "coatcheck.image" -}}
{{- $image := printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- if .Values.image.digest }}{{ printf "%s@%s" $image .Values.image.digest | quote }}{{ else }}{{ quote $image }}{{ end }}
{{- end }}
