#!/usr/bin/env bash
# Downloads a model folder or files of a data set from the Hugging Face hub, or from a mirror of it.
#
#   dev/download.sh model Qwen/Qwen2.5-Math-1.5B models/Qwen2.5-Math-1.5B
#   dev/download.sh dataset HuggingFaceH4/MATH-500 data/math500 test.jsonl
#
# HF_ENDPOINT  where from (default https://huggingface.co)      HF_TOKEN  for repositories that ask for one
# REVISION     branch, tag or commit (default main)             LIST=1    only say what would be downloaded
#
# An interrupted download goes on where it stopped (FILE.part). All files are of one commit. Size and hash of every
# file are compared with what the hub says (SHA-256 for large files, git's SHA-1 for small ones); a file that is
# there already and right is not fetched again. Needs bash, curl, sha256sum.
set -euo pipefail

endpoint=${HF_ENDPOINT:-https://huggingface.co}
endpoint=${endpoint%/}
revision=${REVISION:-main}

die() {
    printf 'error: download: %s\nhint: %s\n' "$1" "$2" >&2
    exit "${3:-1}"
}
usage() { die "$1" "dev/download.sh model OWNER/NAME FOLDER, or dev/download.sh dataset OWNER/NAME FOLDER FILE..." 2; }

command -v curl > /dev/null || die "curl is missing" "apt-get install curl"
(($# >= 3)) || usage "three arguments are needed, $# are given"
kind=$1 repo=$2 folder=$3
shift 3
[[ $repo =~ ^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$ ]] || usage "\"$repo\" is not OWNER/NAME"
revision=${revision//\//%2F}
[[ $revision =~ ^[A-Za-z0-9._%-]+$ ]] || usage "REVISION \"$revision\" is not a branch, tag or commit"
case $kind in
    model)
        (($# == 0)) || usage "a model is downloaded whole; \"$1\" is one argument too many"
        base=$endpoint/$repo
        ;;
    dataset)
        (($# > 0)) || usage "which files of the data set?"
        base=$endpoint/datasets/$repo
        ;;
    *) usage "\"$kind\" is neither model nor dataset" ;;
esac

# The token must not show up in the list of processes; curl itself drops it when it is sent on to another host.
fetch() {
    curl --silent --show-error --connect-timeout 20 --speed-limit 1000 --speed-time 60 \
        --config <([[ -z ${HF_TOKEN:-} ]] || printf 'header = "Authorization: Bearer %s"\n' "$HF_TOKEN") "$@"
}

# Value of the last header of that name, without quotes and the mark of weak tags.
header() { sed -n "s/^$1: *//Ip" <<< "$headers" | tail -1 | tr -d '\r"' | sed 's/^W\///'; }

# Asks about a file: sets status, size, hash. Redirects within the host (renamed repositories) are followed; one to
# another host is where large files lie, and its own headers say less.
ask() {
    local url=$base/resolve/$revision/$1 hop target
    for hop in 1 2 3 4 5; do
        headers=$(fetch --head "$url") || die "$url: no answer" "is HF_ENDPOINT ($endpoint) right, and the network up?"
        status=$(sed -n '1s/^HTTP[^ ]* \([0-9]*\).*/\1/p' <<< "$headers")
        target=$(header location)
        [[ $status == 30? && $target == /* && -z $(header x-linked-etag) ]] || break
        url=$endpoint$target
    done
    case $status in
        200 | 301 | 302 | 303 | 307 | 308) ;;
        404) return ;;
        401 | 403) die "$url: not allowed ($status)" "accept the model's terms on the hub and set HF_TOKEN; or is the name wrong?" ;;
        *) die "$url: the hub answers $status" "try again later, or set HF_ENDPOINT to a mirror" ;;
    esac
    size=$(header x-linked-size)
    hash=$(header x-linked-etag)
    [[ -n $size ]] || size=$(header content-length)
    [[ -n $hash ]] || hash=$(header etag)
    [[ $size =~ ^[0-9]+$ ]] || die "$url: the hub does not say how long it is" "is HF_ENDPOINT ($endpoint) a mirror of the hub?"
    commit=$(header x-repo-commit)
    # From now on this commit: a push in between must not mix two versions.
    [[ ! $commit =~ ^[0-9a-f]{40}$ ]] || revision=$commit
}

# A list alone must leave nothing behind, though an index has to be read for it.
[[ -z ${LIST:-} ]] || { folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT; }

names=() sizes=() hashes=()
plan() {
    ask "$1"
    [[ $status != 404 ]] || return 1
    names+=("$1") sizes+=("$size") hashes+=("$hash")
}

# The hash that FILE has, in the form of the hash it should have: 64 digits SHA-256, 40 digits git's.
hash_of() {
    if ((${#2} == 64)); then
        sha256sum < "$1" | cut -d' ' -f1
    else
        { printf 'blob %d\0' "$(stat -c %s "$1")" && cat "$1"; } | sha1sum | cut -d' ' -f1
    fi
}
hash_known() { [[ $1 =~ ^([0-9a-f]{64}|[0-9a-f]{40})$ ]]; }
right() { # FILE SIZE HASH
    [[ -f $1 && $(stat -c %s "$1") == "$2" ]] || return 1
    ! hash_known "$3" || [[ $(hash_of "$1" "$3") == "$3" ]]
}

get() { # NAME SIZE HASH
    local name=$1 size=$2 hash=$3 part=$folder/$1.part before now tries=0 code again=0
    local word="size and hash right"
    hash_known "$hash" || word="size right, the hub offers no hash"
    if right "$folder/$name" "$size" "$hash"; then
        printf '%12d  %s  (already there)\n' "$size" "$name"
        return
    fi
    mkdir -p "$(dirname "$folder/$name")"
    while true; do
        before=$(stat -c %s "$part" 2> /dev/null || echo 0)
        if ((before > size)); then
            rm -f "$part"
            continue
        fi
        code=0
        ((before == size && size > 0)) || fetch --fail --location --continue-at - --output "$part" \
            "$base/resolve/$revision/$name" || code=$?
        [[ -e $part ]] || : > "$part"
        now=$(stat -c %s "$part")
        if ((now == size)); then
            right "$part" "$size" "$hash" && break
            rm -f "$part"
            ((again++ == 0)) || die "$name: hash is wrong twice (should be $hash)" "the mirror's copy is damaged: try another HF_ENDPOINT"
            printf '%12s  %s: hash is wrong, once more from the start\n' "" "$name"
        elif ((code == 33)); then
            rm -f "$part" # this server cannot go on in the middle of a file
            ((tries++ < 5)) || die "$name: the server cannot resume" "try another HF_ENDPOINT"
        elif ((now <= before)); then
            ((tries++ < 5)) || die "$name: $now of $size bytes, then nothing more (curl says $code)" "run this again: it goes on where it stopped"
            sleep "$tries"
        fi
    done
    sync "$part"
    mv "$part" "$folder/$name"
    printf '%12d  %s  (%s)\n' "$size" "$name" "$word"
}

if [[ $kind == model ]]; then
    plan config.json || die "$base: no config.json at revision $revision" "check OWNER/NAME and REVISION"
    for name in generation_config.json tokenizer.json tokenizer_config.json chat_template.jinja special_tokens_map.json \
        added_tokens.json vocab.json merges.txt; do
        plan "$name" || true
    done
    if ! plan model.safetensors; then
        index=model.safetensors.index.json
        plan "$index" || die "$base: no model.safetensors and no $index" "only safetensors weights are read; is there a converted copy of this model?"
        get "$index" "${sizes[-1]}" "${hashes[-1]}"
        shards=$(grep -o '"[A-Za-z0-9._-]*\.safetensors"' "$folder/$index" | tr -d '"' | sort -u)
        [[ -n $shards ]] || die "$index names no file" "the file on the hub is damaged"
        for name in $shards; do
            plan "$name" || die "$base: $name is missing, the index names it" "the repository is not complete"
        done
    fi
else
    for name in "$@"; do
        [[ $name =~ ^[A-Za-z0-9._/-]+$ && $name != /* && /$name/ != */../* ]] || usage "\"$name\" is not a file name"
        plan "$name" || die "$base: no $name at revision $revision" "look at $base/tree/$revision"
    done
fi

total=0
for size in "${sizes[@]}"; do total=$((total + size)); done
printf '%s at %s: %d files, %d bytes\n' "$base" "$revision" "${#names[@]}" "$total"
if [[ -n ${LIST:-} ]]; then
    for i in "${!names[@]}"; do printf '%12d  %s\n' "${sizes[i]}" "${names[i]}"; done
    exit 0
fi
mkdir -p "$folder"
here=$(du -sb "$folder" | cut -f1) # what is there already, whole or in part
free=$(df --output=avail -B1 "$folder" | tail -1)
((free + here >= total)) || die "$folder: not enough disk space: $total bytes needed, $free free" "choose another folder"
for i in "${!names[@]}"; do get "${names[i]}" "${sizes[i]}" "${hashes[i]}"; done
for name in "${names[@]}"; do
    [[ $name != *.parquet ]] || printf 'to JSONL: python3 -c "import pandas; pandas.read_parquet('"'%s'"').to_json('"'%s'"', orient='"'records'"', lines=True)"\n' \
        "$folder/$name" "$folder/${name%.parquet}.jsonl"
done
