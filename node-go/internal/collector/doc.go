// Package collector gives back the room of what no image of the private registry has any more, beside the registry's
// processes, which go on pushing and pulling meanwhile.
//
// CNCF Distribution removes names and links by its API, and bytes only by a program that must run while nobody pushes.
// This is how the same is done beside pushes:
//
//  1. A blob is a candidate if no manifest of any repository names it, and neither it nor a link to it is young.
//  2. Its file is renamed into the trash. To the registry that is a blob that it does not have: whoever asks is told so
//     and sends it again, which makes a new file.
//  3. After a while in which every call ends that may have seen the file before, all manifests and links are read again.
//     What a manifest names by now, or a new link leads to, is renamed back. The rest is deleted.
//
// So no image is ever without a blob that it names, but for that while: Distribution takes a manifest only if all that it
// names is there. Either it saw the file before the rename, and then the third step sees the manifest; or it saw a new
// file, which no step touches; or it refuses the manifest, and the one who pushes sends everything again (MANIFEST_BLOB_
// UNKNOWN). What is left of a process that was killed between two steps is in the trash, where the next one begins.
package collector
