// Pins the kinds of the Prometheus operator that the chart's monitors and rules are checked against: nothing is compiled.
module vmherd.dev/monitoring

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
