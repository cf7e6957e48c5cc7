{{/* Labels of everything in this chart. */}}
{{- define "hami-daemon.labels" -}}
koord-app: hami-daemon
app.kubernetes.io/name: koordinator
app.kubernetes.io/component: hami-daemon
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}
