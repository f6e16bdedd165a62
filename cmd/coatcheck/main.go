// Command coatcheck is the service and the tools of package coatcheck. See `coatcheck help`, or the
// README.
package main

import (
	"os"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/cli"
)

func main() { os.Exit(cli.Main()) }
