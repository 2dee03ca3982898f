"""Streamlit: streamlit run streamlit_app.py --server.port PORT."""

import hashlib

import streamlit as st

said = st.text_input("said")
st.write(f"got {said}")
if sent := st.file_uploader("file"):
    st.write(f"{sent.name} {hashlib.sha256(sent.read()).hexdigest()}")
