{{/* The flags of the values that kube-proxy's configuration has no field for. Each one
has a value of its own; a test of cmd/nftproxy compares this list with the program. */}}
{{- define "nftproxy.features" -}}
{{- if .Values.serviceMetrics }}
- --service-metrics
{{- end }}
{{- if .Values.endpointMetrics }}
- --endpoint-metrics
{{- end }}
{{- with .Values.observe }}
- --observe={{ . }}
{{- end }}
{{- with .Values.observeGroup }}
- --observe-group={{ int64 . }}
{{- end }}
{{- with .Values.logConnections }}
- --log-connections={{ . }}
{{- end }}
{{- with .Values.fastPath }}
- --fast-path={{ . }}
{{- end }}
{{- if .Values.web }}
{{- if not (include "nftproxy.port" .Values.config.metricsBindAddress) }}
{{- fail "web: config.metricsBindAddress has port 0, which disables the server of the page: set it to 127.0.0.1:10249" }}
{{- end }}
- --web
{{- end }}
{{- with .Values.allowedHosts }}
- {{ printf "--allowed-hosts=%s" (join "," .) | quote }}
{{- end }}
{{- with .Values.masqueradeFrom }}
- --masquerade-from={{ join "," . }}
{{- end }}
{{- with .Values.scheduler }}
- --scheduler={{ . }}
{{- end }}
{{- with .Values.affinitySize }}
- --affinity-size={{ int64 . }}
{{- end }}
{{- if .Values.answerPing }}
- --answer-ping
{{- end }}
{{- with .Values.loadBalancerCIDRs }}
- --load-balancer-cidrs={{ join "," . }}
{{- end }}
{{- if .Values.healthChecks }}
- --health-checks
{{- end }}
{{- if .Values.conntrackTCPCleanup }}
- --conntrack-tcp-cleanup
{{- end }}
{{- if .Values.announceNFTables }}
- --announce-nftables
{{- end }}
{{- if not .Values.tableOwner }}
- --no-table-owner
{{- end }}
{{- with .Values.startJitter }}
- --start-jitter={{ . }}
{{- end }}
{{- if .Values.nodeCondition }}
- --node-condition
{{- end }}
{{- with .Values.drainDirectory }}
- {{ printf "--drain-file=%s/drain.yaml" (trimSuffix "/" .) | quote }}
{{- end }}
{{- end }}

{{/*
Whether the pod has a directory of its own for the socket: not where a value gives it another one, or has the
name or the place.
*/}}
{{- define "nftproxy.ownSocket" -}}
{{- $taken := .Values.runtimeDirectory -}}
{{- range .Values.extraVolumes }}{{ if eq .name "socket" }}{{ $taken = "a volume" }}{{ end }}{{ end -}}
{{- range .Values.extraVolumeMounts }}{{ if hasPrefix "/run/nftproxy" .mountPath }}{{ $taken = "a mount" }}{{ end }}{{ end -}}
{{- if not $taken }}true{{ end -}}
{{- end -}}
