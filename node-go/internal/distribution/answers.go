// Package distribution knows what answers of the private registry, which is CNCF Distribution, mean.
package distribution

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Full reports whether an error is a registry's that has no room.
func Full(err error) bool {
	var answered *transport.Error
	if !errors.As(err, &answered) {
		return false
	}
	if answered.StatusCode == http.StatusInsufficientStorage || answered.StatusCode == http.StatusRequestEntityTooLarge {
		return true
	}
	words := answered.Error()
	return strings.Contains(words, syscall.ENOSPC.Error()) || strings.Contains(words, syscall.EDQUOT.Error()) ||
		slices.ContainsFunc(answered.Errors, func(one transport.Diagnostic) bool {
			number := enclosed(one.Detail)
			return number == syscall.ENOSPC || number == syscall.EDQUOT
		})
}

// enclosed returns the error of the system that an answer with status 500 tells: by its number, without words.
func enclosed(detail any) syscall.Errno {
	told, _ := detail.(map[string]any)
	inner, _ := told["Enclosed"].(map[string]any)
	number, _ := inner["Err"].(float64)
	return syscall.Errno(number)
}

// Collected reports whether a registry does not take a manifest, since it does not have all that it names: it had been
// there while nothing named it, and was collected.
func Collected(err error) bool {
	var answered *transport.Error
	return errors.As(err, &answered) && slices.ContainsFunc(answered.Errors, func(one transport.Diagnostic) bool {
		return one.Code == transport.ManifestBlobUnknownErrorCode
	})
}
