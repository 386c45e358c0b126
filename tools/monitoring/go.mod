// Pins the version of the Prometheus operator whose kinds the tests of the chart's monitors and rules use. Nothing is
// compiled.
module vmherd.dev/monitoring

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
