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

{{/* The namespace of all objects: the original's value, or the namespace of the release. */}}
{{- define "koordinator.namespace" -}}
{{ (.Values.installation).namespace | default .Release.Namespace }}
{{- end -}}

{{/* One image has every component. */}}
{{- define "koordinator.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{/* Adds arguments of a plugin to a profile that names it; arguments that are there stay. */}}
{{- define "koordinator.scheduler.arguments" -}}
{{- if contains .plugin (toJson .profile) -}}
{{- $found := dict -}}
{{- range .profile.pluginConfig -}}
{{- if eq .name $.plugin -}}
{{- $_ := set . "args" (merge (.args | default dict) $.args) -}}
{{- $found = . -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- $header := dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" (printf "%sArgs" .plugin) -}}
{{- $config := dict "name" .plugin "args" (merge $header .args) -}}
{{- $_ := set .profile "pluginConfig" (append (.profile.pluginConfig | default list) $config) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Puts Coscheduling, which preempts for whole jobs, in the place of DefaultPreemption. */}}
{{- define "koordinator.scheduler.jobPreemption" -}}
{{- $point := (.plugins | default dict).postFilter | default dict -}}
{{- $names := list -}}
{{- range $point.enabled -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- if and (has "DefaultPreemption" $names) (not (has "Coscheduling" $names)) -}}
{{- $enabled := list -}}
{{- range $point.enabled -}}
{{- if eq .name "DefaultPreemption" -}}
{{- $enabled = append $enabled (dict "name" "Coscheduling") -}}
{{- else -}}
{{- $enabled = append $enabled . -}}
{{- end -}}
{{- end -}}
{{- $_ := set $point "enabled" $enabled -}}
{{- end -}}
{{- end -}}

{{/* The configuration of the scheduler; the Role of the lease follows from what is fixed here. */}}
{{- define "koordinator.scheduler.configuration" -}}
{{- $config := deepCopy .Values.scheduler.config -}}
{{- $namespace := include "koordinator.namespace" . -}}
{{- range $profile := $config.profiles -}}
{{- with $.Values.scheduler.deviceShare.gpuShareUnsupportedModels -}}
{{- $args := dict "gpuShareUnsupportedModels" . -}}
{{- $_ := include "koordinator.scheduler.arguments" (dict "profile" $profile "plugin" "DeviceShare" "args" $args) -}}
{{- end -}}
{{- if ne $namespace "koordinator-system" -}}
{{- $args := dict "quotaGroupNamespace" $namespace -}}
{{- $_ := include "koordinator.scheduler.arguments" (dict "profile" $profile "plugin" "ElasticQuota" "args" $args) -}}
{{- end -}}
{{- if $.Values.scheduler.enableJobPreemption -}}
{{- $args := dict "enablePreemption" true -}}
{{- $_ := include "koordinator.scheduler.arguments" (dict "profile" $profile "plugin" "Coscheduling" "args" $args) -}}
{{- $_ := include "koordinator.scheduler.jobPreemption" $profile -}}
{{- end -}}
{{- end -}}
{{- $election := dict
      "leaderElect" true
      "resourceLock" "leases"
      "resourceName" "koord-scheduler"
      "resourceNamespace" (include "koordinator.namespace" .) -}}
{{- $fixed := dict
      "apiVersion" "kubescheduler.config.k8s.io/v1"
      "kind" "KubeSchedulerConfiguration"
      "leaderElection" $election -}}
{{- mergeOverwrite $config $fixed | toYaml -}}
{{- end -}}

{{/* The configuration of the descheduler; the Role of the lease follows from what is fixed here. */}}
{{- define "koordinator.descheduler.configuration" -}}
{{- $election := dict
      "leaderElect" true
      "resourceLock" "leases"
      "resourceName" "koord-descheduler"
      "resourceNamespace" (include "koordinator.namespace" .) -}}
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

{{/* The feature gates of the manager; the original's chart has them at the top. */}}
{{- define "koordinator.manager.gates" -}}
{{ join "," (compact (list .Values.featureGates .Values.manager.featureGates)) }}
{{- end -}}

{{/* The feature gates of the agent; the original's chart calls them features. */}}
{{- define "koordinator.koordlet.gates" -}}
{{ .Values.koordlet.features | default .Values.koordlet.featureGates | nospace }}
{{- end -}}

{{/* The port of the agent; the original's chart has it below metrics. */}}
{{- define "koordinator.koordlet.port" -}}
{{ (.Values.koordlet.metrics).port | default .Values.koordlet.port }}
{{- end -}}

{{/* The affinity of a component: a nodeAffinity, or a whole affinity as the original's daemons have. */}}
{{- define "koordinator.affinity" -}}
{{- with .nodeAffinity -}}
{{- $isWhole := or (hasKey . "nodeAffinity") (hasKey . "podAffinity") (hasKey . "podAntiAffinity") -}}
{{- dict "affinity" (ternary . (dict "nodeAffinity" .) $isWhole) | toYaml -}}
{{- end -}}
{{- end -}}

{{/* Values of the original's chart that have no effect, or another one, in this chart: a line each. */}}
{{- define "koordinator.differences" -}}
{{- $lines := list -}}
{{- range $name, $value := .Values.crds -}}
{{- if not $value -}}
{{- $lines = append $lines (printf "crds.%s: Helm installs all CRDs or, with --skip-crds, none" $name) -}}
{{- end -}}
{{- end -}}
{{- if (.Values.installation).roleListGroups -}}
{{- $lines = append $lines "installation.roleListGroups: no effect; roles have the rights that are used" -}}
{{- end -}}
{{- if .Values.imageRepositoryHost -}}
{{- $lines = append $lines "imageRepositoryHost: no effect; image.repository sets the image of all programs" -}}
{{- end -}}
{{- range $component := list "scheduler" "manager" "descheduler" "koordlet" "deviceDaemon" -}}
{{- if (get $.Values $component).image -}}
{{- $lines = append $lines (printf "%s.image: no effect; image sets the image of all programs" $component) -}}
{{- end -}}
{{- end -}}
{{- range $component, $port := dict "scheduler" 10259 "descheduler" 10258 -}}
{{- if (get $.Values $component).port -}}
{{- $lines = append $lines (printf "%s.port: no effect; health and metrics are on port %d, over HTTPS" $component $port) -}}
{{- end -}}
{{- end -}}
{{- range list "compatible122FeatureGates" "compatibleBelow122FeatureGates" -}}
{{- if get $.Values.scheduler . -}}
{{- $lines = append $lines (printf "scheduler.%s: no effect; Kubernetes 1.33 to 1.37 are supported" .) -}}
{{- end -}}
{{- end -}}
{{- if .Values.manager.resyncPeriod -}}
{{- $lines = append $lines "manager.resyncPeriod: no effect; watches miss no event" -}}
{{- end -}}
{{- if .Values.manager.metrics.addr -}}
{{- $lines = append $lines "manager.metrics.addr: no effect; metrics are served on all addresses" -}}
{{- end -}}
{{- if (.Values.koordlet.metrics).port -}}
{{- $lines = append $lines "koordlet.metrics.port: HTTPS; metrics need the ClusterRole koord-metrics-reader" -}}
{{- end -}}
{{- range list "kubeletConfigDir" "koordProxyRegisterDir" "koordletSockDir" "koordletTSDBDir" -}}
{{- if get $.Values.koordlet.hostDirs . -}}
{{- $lines = append $lines (printf "koordlet.hostDirs.%s: no effect; the folder is not used" .) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.deviceDaemon.image (not .Values.deviceDaemon.enabled) -}}
{{- $lines = append $lines "deviceDaemon.image: koord-device-daemon is installed, as by the original's chart" -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}

{{/* Whether koord-device-daemon is installed: the original's chart has no setting for it. */}}
{{- define "koordinator.hasDeviceDaemon" -}}
{{ if or .Values.deviceDaemon.enabled .Values.deviceDaemon.image }}true{{ end }}
{{- end -}}
