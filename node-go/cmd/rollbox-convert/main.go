// rollbox-convert makes an image that nodes can mount while it is still being fetched, and pushes it.
//
//	rollbox-convert [-first FILE] [-folder DIR] [-insecure] SOURCE TARGET
//
// FILE lists the files that are read first, in this order: one path a line, or what rollbox-snapshotter has recorded
// (ROLLBOX_SNAPSHOTTER_ACCESSES). DIR keeps finished layers, so that a conversion that was interrupted goes on there.
// Credentials are those of Docker's configuration file. The digest of what was pushed is printed.
//
// Exit status: 64 for wrong arguments, 65 for an image that can not be converted, 1 for what may pass.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"rollbox.dev/node/internal/convert"
)

const (
	exitFailed  = 1
	exitSetting = 64
	exitRefused = 65
	firstAtMost = 1 << 16
	lineAtMost  = 1 << 14
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(status(run(ctx, os.Args[1:], os.Stdout)))
}

type argumentError struct{ error }

func status(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "rollbox-convert:", err)
	var refused *convert.RefusedError
	var wrong argumentError
	switch {
	case errors.As(err, &wrong):
		return exitSetting
	case errors.As(err, &refused):
		return exitRefused
	}
	return exitFailed
}

func run(ctx context.Context, arguments []string, out io.Writer) error {
	flags := flag.NewFlagSet("rollbox-convert", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	first := flags.String("first", "", "")
	folder := flags.String("folder", "", "")
	insecure := flags.Bool("insecure", false, "")
	if err := flags.Parse(arguments); err != nil || flags.NArg() != 2 {
		return argumentError{errors.New("usage: rollbox-convert [-first FILE] [-folder DIR] [-insecure] SOURCE TARGET")}
	}
	source, target, err := references(flags.Arg(0), flags.Arg(1), *insecure)
	if err != nil {
		return argumentError{err}
	}
	paths, err := readFirst(*first)
	if err != nil {
		return argumentError{err}
	}
	work := *folder
	if work == "" {
		if work, err = os.MkdirTemp("", "rollbox-convert-"); err != nil {
			return err
		}
		defer os.RemoveAll(work)
	} else if err := os.MkdirAll(work, 0o700); err != nil {
		return argumentError{err}
	}
	// Where the library that writes layers makes its temporary files.
	if err := os.Setenv("TMPDIR", work); err != nil {
		return err
	}
	return transfer(ctx, source, target, convert.Options{Folder: work, First: paths}, out)
}

func references(from, to string, insecure bool) (source, target name.Reference, err error) {
	var options []name.Option
	if insecure {
		options = append(options, name.Insecure)
	}
	if source, err = name.ParseReference(from, options...); err != nil {
		return nil, nil, err
	}
	target, err = name.NewTag(to, options...)
	return source, target, err
}

func transfer(ctx context.Context, source, target name.Reference, options convert.Options, out io.Writer) error {
	how := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	image, err := remote.Image(source, append(how, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))...)
	if err != nil {
		return err
	}
	result, err := convert.Image(ctx, image, options)
	if err != nil {
		return err
	}
	if err := remote.Write(target, result, how...); err != nil {
		return err
	}
	digest, err := result.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s@%s\n", target.Context(), digest)
	return err
}

// readFirst: paths in the order in which they were first opened, each once.
func readFirst(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found []string
	seen := map[string]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, lineAtMost)
	for lines.Scan() {
		one := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(one, "{") {
			var access struct{ Path string }
			if err := json.Unmarshal([]byte(one), &access); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			one = access.Path
		}
		if one != "" && !seen[one] {
			seen[one] = true
			found = append(found, one)
		}
		if len(found) > firstAtMost {
			return nil, fmt.Errorf("%s lists more than %d files", path, firstAtMost)
		}
	}
	return found, lines.Err()
}
