// Prints the fields of Grafana dashboards that Grafana's schema does not know, or that have a wrong type or value. The
// arguments are files. A field that is missing has Grafana's default.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	for _, file := range os.Args[1:] {
		raw, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		var board dashboard.Dashboard
		if err := board.UnmarshalJSONStrict(raw); err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				if !strings.HasSuffix(line, ": required field is missing from input") {
					fmt.Println(line)
				}
			}
		}
	}
}
