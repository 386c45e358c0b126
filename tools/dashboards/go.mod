// Pins Grafana's schema of dashboards, as Go types that are generated from it.
module vmherd.dev/dashboards

go 1.26.0

require github.com/grafana/grafana-foundation-sdk/go v0.0.22
