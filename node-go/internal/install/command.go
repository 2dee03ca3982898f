package install

import "slices"

// Work is what the installer is to do.
type Work struct {
	// Uninstall takes everything away again.
	Uninstall bool
	// DryRun only says what would be done; JSON: as JSON.
	DryRun, JSON bool
	// Stay does it again and again, until the process is told to end.
	Stay bool
	// Again only has an installer that stays try at once what has failed before.
	Again bool
}

// ReadWork takes it from the command line: install or uninstall, and options; or again.
func ReadWork(arguments []string) (work Work, err error) {
	work.Uninstall, work.Again = arguments[0] == "uninstall", arguments[0] == "again"
	if work.Again && len(arguments) > 1 {
		return work, &SettingError{"the option", arguments[1], "there is none for again"}
	}
	options := map[string]*bool{"--dry-run": &work.DryRun, "--json": &work.JSON, "--stay": &work.Stay}
	for _, one := range arguments[1:] {
		option := options[one]
		if option == nil {
			return work, &SettingError{"the option", one, "there are --dry-run, --json and --stay"}
		}
		*option = true
	}
	if work.Stay && slices.Contains([]bool{work.DryRun, work.JSON}, true) {
		return work, &SettingError{"the option", "--stay", "it is not for --dry-run and --json"}
	}
	return work, nil
}
