{{/* Labels of everything that belongs to a component; argument: dict "component" "root". */}}
{{- define "koordinator.labels" -}}
{{ include "koordinator.selector" . }}
app.kubernetes.io/name: koordinator
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end -}}

{{/* What selects the pods of a component: never changes, a Deployment can't either. */}}
{{- define "koordinator.selector" -}}
koord-app: {{ .component }}
{{- end -}}

{{/* One image has every component. */}}
{{- define "koordinator.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{/* The configuration of the scheduler; the Role of the lease follows from what is fixed here. */}}
{{- define "koordinator.scheduler.configuration" -}}
{{- $election := dict
      "leaderElect" true
      "resourceLock" "leases"
      "resourceName" "koord-scheduler"
      "resourceNamespace" .Release.Namespace -}}
{{- $fixed := dict
      "apiVersion" "kubescheduler.config.k8s.io/v1"
      "kind" "KubeSchedulerConfiguration"
      "leaderElection" $election -}}
{{- mergeOverwrite (deepCopy .Values.scheduler.config) $fixed | toYaml -}}
{{- end -}}

{{/* The configuration of the descheduler; the Role of the lease follows from what is fixed here. */}}
{{- define "koordinator.descheduler.configuration" -}}
{{- $election := dict
      "leaderElect" true
      "resourceLock" "leases"
      "resourceName" "koord-descheduler"
      "resourceNamespace" .Release.Namespace -}}
{{- $fixed := dict
      "apiVersion" "descheduler/v1alpha2"
      "kind" "DeschedulerConfiguration"
      "healthzBindAddress" "127.0.0.1:0"
      "metricsBindAddress" "127.0.0.1:0"
      "leaderElection" $election -}}
{{- mergeOverwrite (deepCopy .Values.descheduler.config) $fixed | toYaml -}}
{{- end -}}

{{/* The feature gates of a component, with that of strict tenancy. */}}
{{- define "koordinator.gates" -}}
{{- $strict := ternary "StrictTenancy=true" "" .root.Values.tenancy.strict -}}
{{- join "," (compact (list $strict .gates)) -}}
{{- end -}}
