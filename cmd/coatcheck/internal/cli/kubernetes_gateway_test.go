package cli

import (
	"net/url"
	"slices"
	"time"

	"github.com/coatcheck/coatcheck/gateway"
)

// checkGateway checks a container that is a gateway: what it guards, and how long it may stop.
func (m *manifest) checkGateway(name string, pod, container node, env map[string]string) {
	delete(env, "COATCHECK_CONFIG")
	if url, err := url.Parse(env["COATCHECK_UPSTREAM"]); err != nil || url.Host == "" {
		m.faultf(name, "COATCHECK_UPSTREAM %q is no service", env["COATCHECK_UPSTREAM"])
	}
	for port, variable := range map[string]string{"guarded": "COATCHECK_LISTEN", "admin": "COATCHECK_ADMIN_LISTEN"} {
		if !slices.ContainsFunc(container.at("ports").list(), func(p node) bool {
			return p.at("name").text() == port && p.at("containerPort").text() == portOf(env[variable])
		}) {
			m.faultf(name, "%s is no port %s", variable, port)
		}
	}
	for _, kind := range []string{"startupProbe", "readinessProbe", "livenessProbe"} {
		if container.at(kind, "httpGet", "port").text() != "admin" {
			m.faultf(name, "%s does not ask the admin side", kind)
		}
	}
	routes, err := gateway.ParseRoutes([]byte(m.routesOf(pod)))
	if err != nil {
		m.faultf(name, "routes: %v", err)
	}
	var longest time.Duration
	for _, route := range routes.List {
		longest = max(longest, route.UpstreamTimeout)
	}
	drain, errDrain := time.ParseDuration(env["COATCHECK_DRAIN_DELAY"])
	grace, errGrace := time.ParseDuration(pod.at("terminationGracePeriodSeconds").text() + "s")
	if least := drain + longest + 5*time.Second; errDrain != nil || errGrace != nil || grace < least {
		m.faultf(name, "terminationGracePeriodSeconds %v does not outlast drain delay and the longest route, and 5 s: %v", grace, least)
	}
}

// routesOf is the routes file that a pod mounts.
func (m *manifest) routesOf(pod node) (text string) {
	for _, volume := range pod.at("volumes").list() {
		for _, object := range m.objects {
			if object.at("kind").text() == "ConfigMap" && object.at("metadata", "name").text() == volume.at("configMap", "name").text() {
				text = object.at("data", "routes.yaml").text()
			}
		}
	}
	return text
}

// checkPodMonitor checks that Prometheus's operator asks ports that pods have.
func (m *manifest) checkPodMonitor(where string, spec node) {
	for _, end := range spec.at("podMetricsEndpoints").list() {
		found := false
		m.pods(func(pod node, _ map[string]string) { found = found || hasPort(pod, end.at("port").text()) })
		if !found {
			m.faultf(where, "no container has port %s", end.at("port").text())
		}
	}
}

// checkAutoscaler checks that an autoscaler is of a Deployment here, which names no number itself.
func (m *manifest) checkAutoscaler(where string, spec node) {
	for _, object := range m.objects {
		if object.at("kind").text() == "Deployment" && object.at("metadata", "name").text() == spec.at("scaleTargetRef", "name").text() {
			if object.at("spec", "replicas").is != nil {
				m.faultf(where, "the Deployment has a number of replicas of its own, which each upgrade sets")
			}
			return
		}
	}
	m.faultf(where, "is of no Deployment")
}

// checkMonitor checks that Prometheus's operator is led to a Service, by a port that it has.
func (m *manifest) checkMonitor(where string, spec node) {
	for _, object := range m.objects {
		fits := object.at("kind").text() == "Service"
		for name, value := range spec.at("selector", "matchLabels").labels() {
			fits = fits && object.at("metadata", "labels").labels()[name] == value
		}
		for _, end := range spec.at("endpoints").list() {
			fits = fits && slices.ContainsFunc(object.at("spec", "ports").list(), func(p node) bool { return p.at("name").text() == end.at("port").text() })
		}
		if fits {
			return
		}
	}
	m.faultf(where, "no Service has these labels and ports")
}
