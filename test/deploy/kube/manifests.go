package main

// prepared is what is there before the proxy: Redis, and the sample API as a service that
// knows nothing of idempotency. Services are headless, since nothing routes their addresses.
const prepared = `
apiVersion: v1
kind: Namespace
metadata:
  name: shop
  labels: {pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/warn: restricted}
---
apiVersion: v1
kind: Secret
metadata: {name: store, namespace: shop}
stringData: {redis-url: "redis://redis.shop.svc:6379/0"}
---
apiVersion: v1
kind: Service
metadata: {name: redis, namespace: shop}
spec: {clusterIP: None, selector: {app: redis}, ports: [{name: redis, port: 6379}]}
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: shop}
spec: {clusterIP: None, selector: {app: app}, ports: [{name: http, port: 3000}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: redis, namespace: shop}
spec:
  selector: {matchLabels: {app: redis}}
  template:
    metadata: {labels: {app: redis}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 999, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: redis
          image: localhost/redis:e2e
          imagePullPolicy: Never
          args: [--maxmemory-policy, noeviction, --save, "", --dir, /tmp, --bind, 0.0.0.0, --protected-mode, "no"]
          readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: shop}
spec:
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: app
          image: localhost/idemproxy:e2e
          imagePullPolicy: Never
          args: [demo, "--api=:3000"]
          readinessProbe: {httpGet: {path: /payments, port: 3000}, periodSeconds: 1}
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`

const standaloneValues = `
image: {repository: localhost/idemproxy, tag: e2e, pullPolicy: Never}
existingSecret: store
config:
  upstream: {url: "http://app.shop.svc:3000"}
  store: {redis: {require_noeviction: true}}
  routes: [{name: payments, path: /payments}]
podDisruptionBudget: {enabled: true}
`

// The job asks its sidecar whether it lives: it began after the sidecar was there.
const sidecarValues = `
image: {repository: localhost/idemproxy, tag: e2e, pullPolicy: Never}
job: {args: [healthcheck, "--url=http://127.0.0.1:9090/healthz"]}
idemproxy:
  image: {repository: localhost/idemproxy, tag: e2e, pullPolicy: Never}
  existingSecret: store
  config:
    store: {key_prefix: "shop:"}
`
