#!/bin/sh
# Gets what is missing, builds, and shows the worked example and one real question. With arguments:
# the tool rag with these arguments, from any folder.
#
#   sh examples/run.sh
#   sh examples/run.sh search data/rust-errors "what does E0382 mean" --identifier 'E####'
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
. "$root/examples/setup.sh"
want_examples() { want_tools; }
build examples rag_retrieve_examples || exit 1

if [ $# -gt 0 ]; then exec "$root/build/examples/rag" "$@"; fi

cd "$root" || exit 1
build/examples/pay042 || exit 1
echo
echo "---- A real question over data/rust-errors, 484 pages -----------------------------------------------"
echo
echo "sh examples/run.sh search data/rust-errors 'what does E0382 mean and how do I fix it' --identifier 'E####' --limit 1"
echo
build/examples/rag search data/rust-errors 'what does E0382 mean and how do I fix it' \
  --identifier 'E####' --limit 1 || exit 1
echo
echo "---- Your own documents (.md, .markdown, .txt) ------------------------------------------------------"
echo
echo "sh examples/run.sh search FOLDER 'your question'        finds the passages that answer it"
echo "sh examples/run.sh chunk FILE                           shows where a document is cut"
echo "sh examples/run.sh search --help                        says what else can be asked for"
