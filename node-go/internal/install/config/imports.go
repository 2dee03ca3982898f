package config

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"

	"github.com/pelletier/go-toml/v2/unstable"
)

// First is the file that containerd reads first where there was none.
func First(file string) []byte {
	return fmt.Appendf(nil, "version = %d\n%s", versions[len(versions)-1], line(file))
}

func line(file string) string { return "imports = [" + strconv.Quote(file) + "]\n" }

// WithImport returns the text of containerd's first file with one more import. Every other byte stays as it is.
func WithImport(text []byte, file string) ([]byte, error) {
	at, err := positions(text)
	if err != nil {
		return nil, err
	}
	var made []byte
	switch {
	case at.list >= 0 && at.empty:
		made = insert(text, at.list, strconv.Quote(file))
	case at.list >= 0:
		made = insert(text, at.list, strconv.Quote(file)+", ")
	default:
		made = insert(text, at.line, line(file))
	}
	return made, compare(text, made, file)
}

// WithoutImport takes the import of WithImport out again; the text itself where it is not as WithImport has left it.
func WithoutImport(text []byte, file string) []byte {
	quoted := strconv.Quote(file)
	for _, form := range []string{line(file), quoted + ", ", quoted} {
		index := bytes.Index(text, []byte(form))
		if index < 0 {
			continue
		}
		without := append(append([]byte{}, text[:index]...), text[index+len(form):]...)
		if again, err := WithImport(without, file); err == nil && bytes.Equal(again, text) {
			return without
		}
	}
	return text
}

// compare makes sure that nothing but the import is new.
func compare(before, after []byte, file string) error {
	old, err := parse(File{"containerd's settings", before})
	if err != nil {
		return err
	}
	made, err := parse(File{"containerd's settings with an import", after})
	if err != nil {
		return err
	}
	imports, _ := old["imports"].([]any)
	old["imports"] = append([]any{file}, imports...)
	if !reflect.DeepEqual(old, made) {
		return fmt.Errorf("an import of %s cannot be added to containerd's settings: they would say something else", file)
	}
	return nil
}

type places struct {
	list  int // in the list of imports; -1: there is none
	empty bool
	line  int // where a line of its own can be
}

func positions(text []byte) (places, error) {
	found := places{list: -1}
	var parser unstable.Parser
	parser.Reset(text)
	for parser.NextExpression() {
		node := parser.Expression()
		if node.Kind == unstable.Table || node.Kind == unstable.ArrayTable {
			break
		}
		if node.Kind != unstable.KeyValue {
			continue
		}
		key := node.Key()
		key.Next()
		name, end := string(key.Node().Data), int(key.Node().Raw.Offset+key.Node().Raw.Length)
		if !key.IsLast() {
			continue
		}
		switch name {
		case "version":
			found.line = nextLine(text, end)
		case "imports":
			value := node.Value()
			if value.Kind != unstable.Array {
				return found, fmt.Errorf("imports in containerd's settings is not a list")
			}
			children := value.Children()
			found.list, found.empty = end+bytes.IndexByte(text[end:], '[')+1, !children.Next()
		}
	}
	return found, parser.Error()
}

// nextLine is where the line after the one of a place begins.
func nextLine(text []byte, place int) int {
	if index := bytes.IndexByte(text[place:], '\n'); index >= 0 {
		return place + index + 1
	}
	return len(text)
}

// insert puts a line at the end of a file that does not end with one on a line of its own.
func insert(text []byte, place int, what string) []byte {
	if place > 0 && text[place-1] != '\n' && what[len(what)-1] == '\n' {
		what = "\n" + what
	}
	return append(append(append([]byte{}, text[:place]...), what...), text[place:]...)
}
