package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func (p *program) installCommand() *cobra.Command {
	return &cobra.Command{
		Example: "  coatcheck install /shared/coatcheck",
		Use:     "install FILE", Short: "Copy this program to a file", Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("the file to write belongs here, such as: coatcheck install /shared/coatcheck")}
			}
			return nil
		},
		Long: "Copy this program to a file that can be run. For an init container: the image has no shell and no cp, and `coatcheck " +
			"worker run` has to be in the container of the\n" +
			"command that it runs. deploy/kubernetes/orders.yaml is an example.",
		RunE: func(_ *cobra.Command, args []string) error {
			own, err := os.Executable()
			if err != nil {
				return err
			}
			return copyProgram(own, args[0])
		},
	}
}

const wrongFile = "%w; name the file, in a folder that may be written"

// copyProgram copies a program. The file exists whole or not at all: it replaces an older one at
// the end, which goes on if it runs.
func copyProgram(from, to string) (err error) {
	program, err := os.Open(from) //nolint:gosec // this program itself
	if err != nil {
		return err
	}
	defer program.Close()
	copied, err := os.CreateTemp(filepath.Dir(to), ".coatcheck-*")
	if err != nil {
		return fmt.Errorf(wrongFile, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(copied.Name()) // half of a program is of no use
		}
	}()
	_, err = io.Copy(copied, program)
	if err = errors.Join(err, copied.Chmod(0o755), copied.Sync(), copied.Close()); err != nil {
		return err
	}
	if err = os.Rename(copied.Name(), to); err != nil {
		err = fmt.Errorf(wrongFile, err)
	}
	return err
}
