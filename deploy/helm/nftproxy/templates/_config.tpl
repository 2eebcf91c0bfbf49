{{/* The ConfigMap's data. Its hash is part of its name, so that a change reaches
the nodes in a rolling update, which stops at the first nodes that fail. */}}
{{- define "nftproxy.data" -}}
api-server: {{ required "apiServer is not set: give the URL of the API server, by an address that works without any Service, for example --set apiServer=https://192.0.2.1:6443 (kubectl cluster-info prints it)" .Values.apiServer }}
config.conf: |
  apiVersion: kubeproxy.config.k8s.io/v1alpha1
  kind: KubeProxyConfiguration
  mode: nftables
  {{- $paths := dict "clientConnection" (dict "kubeconfig" "/var/lib/kube-proxy/kubeconfig.conf") }}
  {{- merge $paths .Values.config | toYaml | nindent 2 }}
kubeconfig.conf: |
  # --master sets the address of the API server.
  apiVersion: v1
  kind: Config
  clusters:
  - name: default
    cluster:
      certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
  contexts:
  - name: default
    context:
      cluster: default
      namespace: default
      user: default
  current-context: default
  users:
  - name: default
    user:
      tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
{{- end }}

{{- define "nftproxy.configMap" -}}
{{ .Release.Name }}-{{ include "nftproxy.data" . | sha256sum | trunc 10 }}
{{- end }}

{{/* Shared by both containers. */}}
{{- define "nftproxy.env" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
# Not the Service "kubernetes", which needs nftproxy's own rules.
- name: API_SERVER
  valueFrom:
    configMapKeyRef:
      name: {{ include "nftproxy.configMap" . }}
      key: api-server
{{- end }}

{{- define "nftproxy.args" -}}
- run
- --config=/var/lib/kube-proxy/config.conf
- --hostname-override=$(NODE_NAME)
- --master=$(API_SERVER)
{{- end }}

{{/* The port of an address, for the ports and probes of the pods; empty for port
0, which disables the server. */}}
{{- define "nftproxy.port" -}}
{{ splitList ":" . | last | trimPrefix "0" }}
{{- end }}

{{/* The probe host of a server that does not listen on all addresses. */}}
{{- define "nftproxy.probeHost" -}}
{{- $host := regexReplaceAll ":[0-9]+$" . "" | trimPrefix "[" | trimSuffix "]" -}}
{{- if not (has $host (list "" "0.0.0.0" "::")) -}}
host: {{ $host | quote }}
{{- end -}}
{{- end }}
