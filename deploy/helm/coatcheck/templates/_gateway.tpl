{{- define "coatcheck.gateway.selector" -}}
app.kubernetes.io/name: coatcheck-gateway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "coatcheck.gateway" -}}
- name: gateway
  image: {{ include "coatcheck.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [gateway]
  env:
    - {name: COATCHECK_CONFIG, value: /gateway/gateway.yaml}
    - {name: COATCHECK_ROUTES, value: /routes/routes.yaml}
    - {name: COATCHECK_UPSTREAM, value: {{ .Values.gateway.upstream | quote }}}
    - {name: COATCHECK_LISTEN, value: {{ printf "0.0.0.0:%v" .Values.gateway.port | quote }}}
    # For probes and Prometheus, without a key: no Service leads there.
    - {name: COATCHECK_ADMIN_LISTEN, value: "0.0.0.0:8082"}
    - {name: COATCHECK_INSECURE, value: "true"}
    - {name: COATCHECK_DRAIN_DELAY, value: {{ printf "%vs" .Values.drainSeconds }}}
    {{- range $name, $value := .Values.gateway.settings }}
    - name: COATCHECK_{{ $name | upper | replace "-" "_" }}
      value: {{ $value | toString | quote }}
    {{- end }}
    {{- if .Values.redisCA }}
    - {name: SSL_CERT_FILE, value: /gateway/redis-ca.pem}
    {{- end }}
    - {name: GOMEMLIMIT, value: {{ .Values.goMemLimit | quote }}}
    {{- with .Values.gateway.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {name: guarded, containerPort: {{ .Values.gateway.port }}}
    - {name: admin, containerPort: 8082}
  startupProbe:
    httpGet: {path: /livez, port: admin}
    periodSeconds: 1
    failureThreshold: 30
  readinessProbe:
    httpGet: {path: /readyz, port: admin}
    periodSeconds: 2
    timeoutSeconds: 3
    failureThreshold: 2
  livenessProbe:
    httpGet: {path: /livez, port: admin}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
  volumeMounts:
    - {name: gateway, mountPath: /gateway, readOnly: true}
    - {name: routes, mountPath: /routes, readOnly: true}
{{- end }}

{{- define "coatcheck.gateway.volumes" -}}
- name: gateway
  secret: {secretName: {{ .Values.secret | quote }}, defaultMode: 0440}
- name: routes
  configMap: {name: {{ include "coatcheck.name" . }}-routes}
{{- end }}
